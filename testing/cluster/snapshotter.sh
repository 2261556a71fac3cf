#!/usr/bin/env bash
# Builds the snapshot-controller for tests, once, and downloads the custom resources of snapshots. Idempotent and quick when
# nothing is missing. Progress goes to stderr; the last line on stdout is the directory with `snapshot-controller` and
# `crds/`.
#
# FLEX_CACHE names the cache directory, as for setup.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly module=github.com/kubernetes-csi/external-snapshotter
PATH=$PATH:/usr/local/go/bin

say() { printf 'snapshotter: %s\n' "$*" >&2; }

fail() {
    printf 'snapshotter: error: %s\n' "$@" >&2
    exit 1
}

build() {
    local partial=$cache.partial.$$ started=$SECONDS crds
    command -v go >/dev/null ||
        fail "go is missing: the snapshot-controller is built from its Go module" \
            "install Go 1.26 or newer (https://go.dev/dl/) so that 'go version' works, and run it again"
    say "building the snapshot-controller once, half a minute on 2 cores after Kubernetes, into $cache"
    mkdir -p "$partial/crds"
    (cd "$here/snapshotter" &&
        CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags "-s -w" -o "$partial/snapshot-controller" \
            "$module/v8/cmd/snapshot-controller") >&2 || {
        rm -rf "$partial"
        fail "go build in $here/snapshotter failed (its output is above)" \
            "it downloads modules from $(go env GOPROXY): check that this machine reaches it, and run it again"
    }
    crds=$(cd "$here/snapshotter" && go list -m -f '{{.Dir}}' "$module/client/v8")/config/crd
    # Tests do not use the custom resources of group snapshots, but the controller asks for them.
    cp "$crds"/*snapshot.storage.k8s.io_*.yaml "$partial/crds/"
    chmod -R u+w "$partial"
    # The script writes beside the directory's place and renames: an interrupted build leaves no half directory behind.
    mv "$partial" "$cache"
    say "built the snapshot-controller in $((SECONDS - started)) s"
}

readonly base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the build}/.cache}/flex-provisioner}
mkdir -p "$base"
digest=$(cat "$here"/snapshotter/go.{mod,sum} | sha256sum | cut -c1-16)
readonly cache=$base/snapshotter-$digest
# One build runs at a time, whatever setup.sh builds.
exec 9>"$base/snapshotter.lock"
flock 9
[[ -d $cache ]] || build
echo "$cache"
