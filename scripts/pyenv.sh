#!/bin/sh
# Makes or refreshes a Python environment:  scripts/pyenv.sh DIR REQUIREMENTS [PROJECT]
# The requirements file is a complete freeze, installed without looking at dependencies. PROJECT is
# a source folder that is installed too. Nothing is done while none of them has changed.
set -eu
cd "$(dirname "$0")/.."
dir=$1 requirements=$2 project=${3:-}
python=${PYTHON:-/usr/bin/python3}

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }
say() { echo "setup: $*"; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
pip() {
    if ! "$dir/bin/python" -m pip --disable-pip-version-check --no-input install -q --no-deps \
        "$@" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        echo "setup: pip cannot install into $dir (is there a network?)" >&2
        exit 1
    fi
}

want=$("$python" -V 2>&1 | hash_of - "$requirements")
if [ "$(cat "$dir/.requirements" 2>/dev/null || true)" != "$want" ]; then
    say "Python packages of $requirements into $dir"
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
    pip -r "$requirements"
    echo "$want" >"$dir/.requirements"
fi

[ -n "$project" ] || exit 0
want=$(find "$project" -type f -not -path '*/__pycache__/*' -not -path '*/build/*' \
    -not -path '*.egg-info/*' -not -name '*.pyc' | LC_ALL=C sort | xargs sha256sum | hash_of -)
if [ "$(cat "$dir/.project" 2>/dev/null || true)" != "$want" ]; then
    say "package of $project into $dir"
    # built from a copy, so that nothing is left in the source folder
    copy=$(mktemp -d)
    trap 'rm -rf "$log" "$copy"' EXIT
    cp -R "$project/." "$copy/"
    pip --force-reinstall --no-build-isolation "$copy"
    echo "$want" >"$dir/.project"
fi
