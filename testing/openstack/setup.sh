#!/usr/bin/env bash
# Installs OpenStack's Cinder and Keystone from PyPI for tests, once, each into a virtual environment of its own.
# Idempotent and quick when nothing is missing. Progress goes to stderr; the last line on stdout is the directory with
# `cinder/` and `keystone/`.
#
# FLEX_CACHE names the cache directory, as for testing/cluster/setup.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# Debian's own, for whose version the requirements were resolved.
python=/usr/bin/python3
[[ -x $python ]] || python=python3

say() { printf 'cinder: %s\n' "$*" >&2; }

fail() {
    printf 'cinder: error: %s\n' "$@" >&2
    exit 1
}

install() { # NAME
    local name=$1 place=$cache.partial.$$/$1 started=$SECONDS
    say "installing $name from PyPI once, about a minute, into $cache"
    "$python" -m venv "$place" >&2 ||
        fail "$python cannot make a virtual environment" "install python3-venv and run it again"
    # The list has all packages with their versions; nothing is compiled.
    "$place/bin/pip" install --disable-pip-version-check --no-deps --only-binary :all: \
        --requirement "$here/requirements/$name.txt" >&2 ||
        fail "pip could not install $name (its output is above)" \
            "check that this machine reaches the package index that pip is set up for, and run it again"
    say "installed $name in $((SECONDS - started)) s"
}

readonly base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the programs}/.cache}/flex-provisioner}
mkdir -p "$base"
# The programs in a virtual environment name the interpreter.
digest=$({ cat "$here"/requirements/*.txt; "$python" --version; } | sha256sum | cut -c1-16)
readonly cache=$base/cinder-$digest
# One installation runs at a time, whatever setup.sh installs.
exec 9>"$base/cinder.lock"
flock 9
if [[ ! -d $cache ]]; then
    trap 'rm -rf "$cache.partial.$$"' EXIT
    mkdir -p "$cache.partial.$$"
    install cinder
    install keystone
    # The script installs beside the directory's place and renames: an interrupted installation leaves no half directory
    # behind. It calls programs as modules, since their first lines name the place where they were installed.
    mv "$cache.partial.$$" "$cache"
fi
echo "$cache"
