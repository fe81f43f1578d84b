#!/bin/sh
# Python files compile under the system's Python and have no plain mistakes (ruff, if it is there).
set -eu
cd "$(dirname "$0")/../.."
files=$(git ls-files -co --exclude-standard -- '*.py' | while read -r f; do
    if [ -f "$f" ]; then echo "$f"; fi; done)
[ -n "$files" ] || exit 0
# shellcheck disable=SC2086  # a list of paths without spaces
/usr/bin/python3 - $files <<'PY'
import sys
bad = 0
for path in sys.argv[1:]:
    try:
        compile(open(path, encoding="utf-8").read(), path, "exec")
    except (SyntaxError, ValueError) as e:
        print(f"{path}: {e}")
        bad = 1
sys.exit(bad)
PY
if [ -x build/venv-test/bin/ruff ]; then
    # shellcheck disable=SC2086
    build/venv-test/bin/ruff check --quiet --no-cache --config scripts/lint/ruff.toml $files
fi
