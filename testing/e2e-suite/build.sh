#!/usr/bin/env bash
# Builds the program of Kubernetes' storage specs, and the images of the pods that the specs start, once for each state of the
# sources. Idempotent and quick when nothing is missing.
# Progress goes to stderr; the last line on stdout is the directory with `e2e-suite` and an archive
# of each image.
#
# The program says under which names the specs look for the images. All hold Debian's busybox, dash and dd, and
# Kubernetes' own agnhost, so no registry is needed.
#
# FLEX_CACHE names the cache directory, as for ../cluster/setup.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
PATH=$PATH:/usr/local/go/bin

say() { printf 'e2e-suite: %s\n' "$*" >&2; }

fail() {
    printf 'e2e-suite: error: %s\n' "$@" >&2
    exit 1
}

# Builds a package to a file of a directory.
go_build() { # PACKAGE FILE
    (cd "$here" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags '-s -w' -o "$2" "$1") >&2 ||
        fail "go build of $1 in $here failed (its output is above)" \
            "it downloads modules from $(go env GOPROXY): check that this machine reaches it, and run it again"
}

# Fills the root of the images: busybox with a link for each of its programs, and agnhost.
image_root() { # DIRECTORY
    local program
    mkdir -p "$1/bin" "$1/etc" "$1/tmp"
    chmod 1777 "$1/tmp"
    install -m 0755 /bin/busybox "$1/bin/busybox"
    while read -r program; do
        [[ $program == busybox ]] || ln -s busybox "$1/bin/$program"
    done < <(/bin/busybox --list)
    # Some specs want flags that busybox's dd does not have, and busybox's shell would prefer its own.
    for program in dd sh; do
        rm "$1/bin/$program"
        install -m 0755 "/bin/$program" "$1/bin/$program"
        ldd "/bin/$program" | grep -o '/[^ ]*' | xargs -I '{}' install -D '{}' "$1{}"
    done
    printf 'root:x:0:0:root:/:/bin/sh\n' >"$1/etc/passwd"
    printf 'root:x:0:\n' >"$1/etc/group"
    go_build k8s.io/kubernetes/test/images/agnhost "$1/agnhost"
}

build() {
    local partial=$cache.partial.$$ started=$SECONDS name image
    local -A entrypoint=([agnhost]=/agnhost)
    command -v go >/dev/null ||
        fail "go is missing: the storage specs are built from the modules of Kubernetes" \
            "install Go 1.26 or newer (https://go.dev/dl/) so that 'go version' works, and run it again"
    [[ -x /bin/busybox ]] || fail "/bin/busybox is missing" "run scripts/setup.sh, which installs it"
    say "building Kubernetes' storage specs once, some minutes on 2 cores, into $cache"
    (cd "$here" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go test -trimpath ./verdict) >&2 ||
        fail "the tests of $here/verdict failed (their output is above)" "correct the program"
    mkdir -p "$partial/root"
    trap 'rm -rf "$partial"' EXIT
    go_build . "$partial/e2e-suite"
    image_root "$partial/root"
    while read -r name image; do
        "$here/../cluster/scratch-image.sh" "$image" "$partial/$name.tar" "$partial/root" "${entrypoint[$name]:-/bin/sh}"
    done < <("$partial/e2e-suite" -images)
    rm -rf "$partial/root"
    # The script writes beside the directory's place and renames: an interrupted build leaves no half directory behind.
    mv "$partial" "$cache"
    trap - EXIT
    say "built Kubernetes' storage specs in $((SECONDS - started)) s"
}

readonly base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the build}/.cache}/flex-provisioner}
mkdir -p "$base"
digest=$(cd "$here" && cat ./*.go ./*/*.go build.sh go.mod go.work ../cluster/kubernetes/go.{mod,sum} | sha256sum | cut -c1-16)
readonly cache=$base/e2e-suite-$digest
# One build runs at a time, whatever setup.sh builds.
exec 9>"$base/e2e-suite.lock"
flock 9
[[ -d $cache ]] || build
echo "$cache"
