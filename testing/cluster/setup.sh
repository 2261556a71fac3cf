#!/usr/bin/env bash
# Makes a machine ready for the cluster of tests and demo: Debian packages, the Kubernetes binary, the sandbox image.
# Idempotent and quick when nothing is missing, so it runs before every start. Progress goes to stderr. The last line
# on stdout is the directory with the built files.
#
#   setup.sh                     everything a whole cluster needs
#   setup.sh --control-plane     only what a cluster without nodes needs
#
# FLEX_CACHE names the cache directory; the default is $XDG_CACHE_HOME/flex-provisioner, else ~/.cache/flex-provisioner.
# KUBERNETES names another minor version, such as 1.33: kubernetes/versions has a Go module for each.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly pause_image=localhost/flex-provisioner/pause:1
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin

say() { printf 'setup: %s\n' "$*" >&2; }

# shellcheck source=testing/cluster/packages.sh
source "$here/packages.sh"

fail() {
    printf 'setup: error: %s\n' "$@" >&2
    exit 1
}

# Each line: a program or file that must exist, and its Debian package.
required() {
    cat <<'LIST'
etcd etcd-server
setpriv util-linux
setsid util-linux
nsenter util-linux
unshare util-linux
ip iproute2
LIST
    if [[ $scope == control-plane ]]; then return; fi
    cat <<'LIST'
containerd containerd
containerd-shim-runc-v2 containerd
ctr containerd
runc runc
/usr/lib/cni/bridge containernetworking-plugins
nft nftables
conntrack conntrack
/bin/busybox busybox-static
LIST
}

missing_packages() {
    local what package
    while read -r what package; do
        case $what in
            /*) [[ -x $what ]] || echo "$package" ;;
            *) command -v "$what" >/dev/null || echo "$package" ;;
        esac
    done < <(required) | sort -u
}

ensure_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    if ((${#missing[@]} == 0)); then return; fi
    command -v apt-get >/dev/null ||
        fail "these Debian packages (or what they hold) are missing: ${missing[*]}" \
            "there is no apt-get here: install them by the means of this system and run setup.sh again"
    ((EUID == 0)) ||
        fail "these Debian packages are missing: ${missing[*]}" \
            "run as root: apt-get install ${missing[*]}"
    say "installing Debian packages: ${missing[*]}"
    install_packages "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]} (its output is above)" \
            "check the package sources of this machine and run setup.sh again"
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]} == 0)) || fail "still missing after apt-get install: ${missing[*]}"
}

need_go() {
    command -v go >/dev/null ||
        fail "go is missing: Kubernetes $version is built from its Go modules" \
            "install Go 1.26 or newer (https://go.dev/dl/) so that 'go version' works, and run setup.sh again"
}

# Builds package $1 of the Go module to file $2. Go writes the file next to its place, and the script renames it: an
# interrupted build leaves no half binary behind.
go_build() {
    local package=$1 target=$2 flags=${3:-} partial=$2.partial.$$
    (cd "$here/kubernetes" &&
        CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -modfile="$module" -trimpath -ldflags "-s -w $flags" -o "$partial" "$package") >&2 || {
        rm -f "$partial"
        fail "go build of $package in $here/kubernetes failed (its output is above)" \
            "it downloads modules from $(go env GOPROXY): check that this machine reaches it, and run setup.sh again"
    }
    mv "$partial" "$target"
}

build_kubernetes() {
    local flags=() field minor=${version#v1.}
    # Without major and minor, clients cannot parse the server's version.
    for field in "gitVersion=$version" gitMajor=1 "gitMinor=${minor%%.*}" gitTreeState=clean; do
        flags+=(-X "k8s.io/component-base/version.$field")
    done
    need_go
    say "building Kubernetes $version once, about 5 minutes on 2 cores, into $cache"
    local started=$SECONDS
    go_build . "$cache/kubernetes" "${flags[*]}"
    say "built Kubernetes $version in $((SECONDS - started)) s"
}

build_pause_image() {
    need_go
    say "building the sandbox image $pause_image"
    local root=$cache/pause-root.$$
    mkdir -p "$root"
    go_build ./pause "$root/pause"
    "$here/scratch-image.sh" "$pause_image" "$cache/pause.tar" "$root" /pause
    rm -rf "$root"
}

scope=all
case ${1:-} in
    '') ;;
    --control-plane) scope=control-plane ;;
    *) fail "unknown argument $1; usage: setup.sh [--control-plane]" ;;
esac

# The Go module of the version, which is a path from kubernetes/.
module=go.mod
if [[ -n ${KUBERNETES:-} && -f $here/kubernetes/versions/$KUBERNETES.mod ]]; then module=versions/$KUBERNETES.mod; fi
version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$here/kubernetes/$module")
readonly module version
if [[ -n ${KUBERNETES:-} && $version != "v$KUBERNETES."* ]]; then
    known=$(cd "$here/kubernetes/versions" && printf '%s ' *.mod)
    fail "KUBERNETES is '$KUBERNETES', and there is no Go module for it" \
        "there is one for ${version%.*}, which is the default, and for ${known//.mod/}" \
        "kubernetes/versions/add.sh adds another"
fi

readonly base=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set FLEX_CACHE to a directory for the build}/.cache}/flex-provisioner}
mkdir -p "$base"
digest=$(cd "$here/kubernetes" && cat "$module" "${module%.mod}.sum" main.go pause/main.go | sha256sum | cut -c1-16)
readonly cache=$base/kubernetes-$digest
mkdir -p "$cache"

# One setup runs at a time: two builds at once would take twice as long each, and apt-get refuses to run twice.
exec 9>"$base/lock"
flock --nonblock 9 || {
    say "waiting for another setup.sh to finish"
    flock 9
}
ensure_packages
[[ -x $cache/kubernetes ]] || build_kubernetes
[[ $scope == control-plane || -f $cache/pause.tar ]] || build_pause_image
echo "$cache"
