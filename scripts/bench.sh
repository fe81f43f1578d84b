#!/bin/sh
# `make bench`: what it needs, then tests/bench/bench.py.
set -eu
cd "$(dirname "$0")/.."
scripts/pyenv.sh build/venv-test tests/requirements.txt
exec build/venv-test/bin/python tests/bench/bench.py "$@"
