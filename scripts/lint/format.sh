#!/bin/sh
# Every C file is as clang-format 14 writes it (`make format` repairs).
set -eu
cd "$(dirname "$0")/../.."
. scripts/lint/files.sh
command -v clang-format-14 >/dev/null || { echo "lint: clang-format-14 is missing" >&2; exit 1; }
# not through /dev/stderr: opening that would empty a log file it is redirected to
bad=$(c_files | xargs -r clang-format-14 --dry-run --Werror 2>&1 | grep 'error:' | cut -d: -f1 |
    sort -u | sed 's/$/: not formatted; run "make format"/')
[ -z "$bad" ] || { echo "$bad" >&2; exit 1; }
