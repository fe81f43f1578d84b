#!/bin/sh
# `make build`: packages, compiled programs, Python environment. Does only what is missing.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh build
if [ ! -f build/build.ninja ]; then
    echo "setup: configuring build/"
    meson setup build >/dev/null || { tail -n 20 build/meson-logs/meson-log.txt >&2; exit 1; }
fi
log=build/meson-logs/ninja.txt
ninja -C build >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
scripts/pyenv.sh build/venv python/requirements.txt python
