#!/bin/sh
# `make check`: every test, cheapest first; stops at the first stage that fails and names it.
# `scripts/check.sh STAGE...` runs single stages.
set -eu
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
pytest="build/venv-test/bin/python -m pytest -q"
fuzz_seconds=${FUZZ_SECONDS:-10}

setup() {
    scripts/setup.sh build check
    scripts/pyenv.sh build/venv-test tests/requirements.txt
    # cmocka may have come after the first `meson setup`
    if ! ninja -C build -t targets all 2>/dev/null | grep -q '^tests/unit/'; then
        meson setup --reconfigure build >/dev/null
    fi
    have=tests/e2e/node_modules/.package-lock.json
    if [ ! -f "$have" ] || [ tests/e2e/package-lock.json -nt "$have" ]; then
        echo "setup: npm packages of tests/e2e"
        (cd tests/e2e && npm ci --silent --no-audit --no-fund)
    fi
}

lint() {
    scripts/lint/all.sh
    $pytest tests/lint
}

# meson prints no line of its own that says how many passed
run_unit() {
    status=0
    meson test -C "$1" --suite unit --print-errorlogs --no-rebuild --timeout-multiplier "$2" \
        >"$1/unit.txt" 2>&1 || status=$?
    ok=$(awk '/^Ok:/ { print $2 }' "$1/unit.txt")
    bad=$(awk '/^(Fail|Timeout|Unexpected Pass): / { n += $NF } END { print n + 0 }' "$1/unit.txt")
    if [ "$status" != 0 ]; then
        cat "$1/unit.txt"
        # cmocka says which assertion failed in lines of TAP that meson keeps to its log
        grep -B 1 -A 8 '^not ok' "$1/meson-logs/testlog.txt" || true
    fi
    echo "unit: ${ok:-0} passed, $bad failed"
    [ "$status" = 0 ] && [ "${ok:-0}" != 0 ]
}

unit() {
    ninja -C build --quiet
    run_unit build 1
}

# the second compiler, warnings as errors, with both sanitizers
sanitize() {
    [ -f build-asan/build.ninja ] || CC=clang meson setup build-asan \
        -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
    ninja -C build-asan --quiet
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        run_unit build-asan 4
}

fuzz() {
    [ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=true \
        -Db_sanitize=address,undefined -Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link \
        >/dev/null
    targets=$(ninja -C build-fuzz -t targets all | sed -n 's|^\(tests/fuzz/fuzz_[a-z0-9_]*\):.*|\1|p')
    # shellcheck disable=SC2086  # a list of words
    ninja -C build-fuzz --quiet $targets
    n=0
    for target in $targets; do
        name=${target##*/}
        corpus=build-fuzz/corpus/$name
        seeds=tests/fuzz/corpus/${name#fuzz_}
        mkdir -p "$corpus"
        [ -d "$seeds" ] || seeds=
        if ! "build-fuzz/$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 \
            -artifact_prefix="build-fuzz/$name-" -print_final_stats=0 -verbosity=0 -close_fd_mask=1 \
            "$corpus" $seeds >"build-fuzz/$name.log" 2>&1; then
            tail -n 60 "build-fuzz/$name.log"
            echo "fuzz: $name failed"
            return 1
        fi
        n=$((n + 1))
    done
    echo "fuzz: $n passed, 0 failed"
    [ "$n" != 0 ]
}

integration() {
    $pytest tests/integration
}

thirdparty() {
    for suite in notebook kernel-test message-spec nbclient; do
        if ! /usr/bin/python3 tests/thirdparty/suites.py "$suite" >"build/$suite.txt" 2>&1; then
            cat "build/$suite.txt"
            return 1
        fi
        tail -n 1 "build/$suite.txt"
    done
    $pytest tests/thirdparty
}

e2e() {
    (cd tests/e2e && node --test --test-concurrency=1 ./*.test.mjs)
}

if [ "${1:-}" = --inner ]; then
    "$2"
    exit 0
fi
[ $# != 0 ] || set -- setup lint unit sanitize fuzz integration thirdparty e2e
begin=$(date +%s)
for stage in "$@"; do
    case $stage in
    setup | lint | unit | sanitize | fuzz | integration | thirdparty | e2e) ;;
    *)
        echo "check: no stage $stage" >&2
        exit 2
        ;;
    esac
    echo "== $stage"
    stage_begin=$(date +%s)
    # a process of its own: inside `if`, the shell would ignore `set -e` in a function
    if ! sh scripts/check.sh --inner "$stage"; then
        echo "check: stage $stage failed" >&2
        exit 1
    fi
    echo "== $stage: ok, $(($(date +%s) - stage_begin)) s"
done
echo "check: all stages passed in $(($(date +%s) - begin)) s"
