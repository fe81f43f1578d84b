#!/bin/sh
# Installs the Debian packages of the given lists that are missing, and says so; otherwise silent.
#   scripts/setup.sh build          what `make build` needs
#   scripts/setup.sh build check    what `make check` needs too
set -eu
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

missing=
for list in "$@"; do
    wanted=$(grep -v '^#' "scripts/packages-$list.txt")
    have=" $(dpkg-query -W -f='${Package}=${db:Status-Status} ' 2>/dev/null || true)"
    while read -r package command; do
        case "$have" in *" $package=installed "*) continue ;; esac
        if [ -n "$command" ] && command -v "$command" >/dev/null 2>&1; then continue; fi
        missing="$missing $package"
    done <<LIST
$wanted
LIST
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null 2>&1 ||
    die "needs Debian's packages (or your system's equivalents):$missing"
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || die "not root and no sudo; as root: apt-get install --no-install-recommends$missing"
    sudo=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# apt-get update succeeds without a network too, so that what it said is kept for the verdict below
status=0
$sudo apt-get update -qq >"$log" 2>&1 || status=$?
# shellcheck disable=SC2086  # a list of words
if [ "$status" = 0 ] && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends $missing >>"$log" 2>&1; then
    exit 0
fi
if grep -q -E 'Failed to fetch|Could not resolve' "$log"; then
    grep -E 'Failed to fetch|Could not resolve' "$log" | tail -n 1 >&2
    die "packages cannot be fetched (is there a network?):$missing"
fi
tail -n 15 "$log" >&2
die "packages cannot be installed:$missing"
