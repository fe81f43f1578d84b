#!/bin/sh
# `make build`: packages, compiled programs, Python environment. Does only what is missing.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh build
if [ ! -f build/build.ninja ]; then
    echo "setup: configuring build/"
    meson setup build >/dev/null || { tail -n 20 build/meson-logs/meson-log.txt >&2; exit 1; }
fi
ninja -C build --quiet
scripts/pyenv.sh build/venv python/requirements.txt python
