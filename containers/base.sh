#!/bin/sh
# Makes a base image for agents with debootstrap, where no registry can be reached: Debian 12 with python3, curl and git.
# usage: base.sh [-m MIRROR] [IMAGE]    as root. With IMAGE it is imported (needs the docker command); without, the tar
# goes to standard output: `base.sh > base.tar`, then `clawd image build --base base.tar`.
# MIRROR: a Debian archive; without it the one that this machine's own apt uses.
set -eu
suite=bookworm
say() { echo "base.sh: $*" >&2; }
mirror=
if [ "${1:-}" = -m ]; then
    mirror=${2:?the address of a Debian archive}
    shift 2
fi
image=${1:-}
command -v debootstrap >/dev/null || { say "debootstrap is missing: apt install debootstrap"; exit 1; }
[ "$(id -u)" = 0 ] || { say "debootstrap works as root only"; exit 1; }
if [ -n "$image" ]; then
    command -v docker >/dev/null || { say "the docker command is missing: leave IMAGE out and take the tar"; exit 1; }
elif [ -t 1 ]; then
    say "this is a tar of some 200 MB: say where it goes (> base.tar), or name an image"
    exit 2
fi
if [ -z "$mirror" ]; then
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
        'Component: main' 2>/dev/null | awk -v suite="$suite" '!any { any = $2 } $1 == suite { print $2; found = 1; exit }
        END { if (!found) print any }')
fi
proxy=
eval "$(apt-config shell proxy Acquire::http::Proxy 2>/dev/null || true)"
[ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy="$proxy"

case ${TMPDIR:-} in *[[:space:]]*) export TMPDIR=/var/tmp ;; esac  # debootstrap's own scripts do not quote it
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$root"
# shellcheck disable=SC2086  # no mirror: debootstrap's own default
debootstrap --variant=minbase --include=python3,ca-certificates,curl,git "$suite" "$root" $mirror >&2

# Nothing of it is needed to run, and nobody in it needs to become another.
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/log/* \
    "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/* \
    "$root"/usr/share/lintian "$root"/etc/hostname "$root"/etc/resolv.conf
mkdir -p "$root"/var/lib/apt/lists/partial "$root"/var/cache/apt/archives/partial
find "$root" -xdev -type f -perm /6000 -exec chmod a-s {} +

pack() { tar -C "$root" --numeric-owner --one-file-system --exclude='./dev/*' --exclude='./proc/*' -c .; }
if [ -n "$image" ]; then
    pack | docker import -c "LABEL clawd.base=$(sha256sum "$0" | cut -c1-64)" - "$image" >&2
else
    pack
fi
