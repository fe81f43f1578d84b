#!/bin/sh
# All gates that need no compiler, in one go; names each one that fails.
set -u
cd "$(dirname "$0")/../.."
failed=
for gate in format.sh layers.py banned.py size.py docs.py config_docs.py python.sh; do
    "scripts/lint/$gate" || failed="$failed $gate"
done
if [ -n "$failed" ]; then
    echo "lint: failed:$failed" >&2
    exit 1
fi
echo "lint: ok"
