#!/bin/sh
# Every C file is as clang-format 14 writes it (`make format` repairs).
set -eu
cd "$(dirname "$0")/../.."
. scripts/lint/files.sh
c_files | xargs -r clang-format-14 --dry-run --Werror 2>&1 | grep 'error:' | cut -d: -f1 | sort -u |
    sed 's/$/: not formatted; run "make format"/' | tee /dev/stderr | (! grep -q .)
