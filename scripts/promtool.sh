#!/usr/bin/env bash
# Prints where promtool is. Without one, takes it from Debian's package `prometheus` into
# ${FLEX_CACHE:-~/.cache/flex-provisioner}. The package is not installed, so that no server starts.
#
#   promtool.sh [prometheus]     the server of the same package
set -euo pipefail

readonly program=${1:-promtool}
readonly directory=${FLEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flex-provisioner}/promtool

if command -v "$program"; then exit; fi
if [[ ! -x $directory/$program ]]; then
    command -v apt-get >/dev/null || {
        echo "promtool.sh: error: $program is missing, and this machine has no apt-get: install Prometheus" >&2
        exit 1
    }
    echo "promtool.sh: taking $program from the Debian package prometheus into $directory" >&2
    mkdir -p "$directory"
    work=$(mktemp -d -p "$directory")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    {
        # A fresh machine has no lists of packages, and lists may be too old.
        apt-get download -q prometheus || {
            apt-get update -q
            apt-get download -q prometheus
        }
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract "./usr/bin/$program"
    } </dev/null >&2
    mv "usr/bin/$program" "$directory/$program"
fi
echo "$directory/$program"
