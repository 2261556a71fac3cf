#!/usr/bin/env bash
# Builds the CSI driver of the tests and the programs beside it, each once for each state of its sources. Idempotent and
# quick when nothing is missing.
# Progress goes to stderr; the last line on stdout is the directory with the program, which is static.
#
#   build.sh             csi-driver, with real volumes
#   build.sh --mock      csi-mock, the service of Kubernetes' own tests with hooks for failures
#   build.sh --sanity    csi-sanity, the suite that drivers have to pass
#
# FLEX_CACHE names the cache directory, as for ../cluster/setup.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
PATH=$PATH:/usr/local/go/bin

say() { printf 'csi-driver: %s\n' "$*" >&2; }

fail() {
    printf 'csi-driver: error: %s\n' "$@" >&2
    exit 1
}

# Prints the sources of a program: its module without the tests. The module of csi-sanity has only versions.
sources() {
    find "$module" -maxdepth 1 \( -name '*.go' ! -name '*_test.go' -o -name 'go.*' \) -print0 | sort -z | xargs -0 cat
}

build() {
    local partial=$cache.partial.$$ started=$SECONDS
    command -v go >/dev/null ||
        fail "go is missing: $program is built from its Go modules" \
            "install Go 1.26 or newer (https://go.dev/dl/) so that 'go version' works, and run it again"
    say "building $program, half a minute on 2 cores the first time, into $cache"
    mkdir -p "$partial"
    (cd "$module" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags "-s -w" -o "$partial/$program" "$package") >&2 || {
        rm -rf "$partial"
        fail "go build in $module failed (its output is above)" \
            "it downloads modules from $(go env GOPROXY): check that this machine reaches it, and run it again"
    }
    # The script writes beside the directory's place and renames: an interrupted build leaves no half directory behind.
    mv "$partial" "$cache"
    say "built $program in $((SECONDS - started)) s"
}

program=csi-driver module=$here package=.
case ${1:-} in
    '') ;;
    --mock) program=csi-mock module=$here/mock ;;
    --sanity) program=csi-sanity module=$here/sanity package=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity ;;
    *) fail "unknown argument $1; usage: build.sh [--mock|--sanity]" ;;
esac
readonly program module package

readonly base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the build}/.cache}/flex-provisioner}
mkdir -p "$base"
digest=$(sources | sha256sum | cut -c1-16)
readonly cache=$base/$program-$digest
# One build runs at a time, whatever setup.sh builds.
exec 9>"$base/csi-driver.lock"
flock 9
[[ -d $cache ]] || build
echo "$cache"
