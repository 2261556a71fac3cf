#!/usr/bin/env bash
# Builds the S3 server of the tests, versitygw, from its Go module, once for each version. Idempotent and quick when
# nothing is missing.
# Progress goes to stderr; the last line on stdout is the directory with the program, which is static.
# FLEX_CACHE names the cache directory, as for ../cluster/setup.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/local/go/bin

say() { printf 's3: %s\n' "$*" >&2; }

fail() {
    printf 's3: error: %s\n' "$@" >&2
    exit 1
}

base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the build}/.cache}/flex-provisioner}
mkdir -p "$base"
cache=$base/versitygw-$(cat "$here"/go.* | sha256sum | cut -c1-16)
# One build runs at a time.
exec 9>"$base/s3.lock"
flock 9
if [[ ! -d $cache ]]; then
    command -v go >/dev/null || fail "go is missing: install Go 1.26 or newer (https://go.dev/dl/), and run it again"
    say "building versitygw, a minute on 2 cores, into $cache"
    partial=$cache.partial.$$
    mkdir -p "$partial"
    (cd "$here" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags '-s -w' -o "$partial/versitygw" \
        github.com/versity/versitygw/cmd/versitygw) >&2 || {
        rm -rf "$partial"
        fail "go build failed (its output is above)" "it downloads modules from $(go env GOPROXY): check that this machine reaches it"
    }
    # An interrupted build leaves no half directory behind.
    mv "$partial" "$cache"
fi
echo "$cache"
