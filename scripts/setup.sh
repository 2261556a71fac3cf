#!/usr/bin/env bash
# Makes a machine ready to build, run and test this project: Debian packages, the Kubernetes binary. Idempotent, and quick
# if nothing is missing. Building needs Rust, and Go to build Kubernetes, which this script does not install.
#
#   setup.sh            what `make demo` and `make cluster-up` need
#   setup.sh --images   what `make images` needs: no Go, no Kubernetes
#   setup.sh --push     what `make push` needs: no compiler
#   setup.sh --test     what all of these and the tests need
#   setup.sh --packages only the Debian packages of --test
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=testing/cluster/packages.sh
source testing/cluster/packages.sh

scope='demo' only_packages=
case ${1:-} in
    '') ;;
    --images | --push | --test) scope=${1#--} ;;
    --packages) scope='test' only_packages=yes ;;
    *) fail "unknown argument $1; usage: setup.sh [--images | --push | --test | --packages]" ;;
esac

# Prints the required programs and files, each with its Debian package. testing/cluster/setup.sh has a list of its own.
required() {
    echo '/etc/ssl/certs/ca-certificates.crt ca-certificates'
    [[ $scope == push ]] || cat <<'LIST'
cc gcc
/usr/include/stdio.h libc6-dev
ld binutils
readelf binutils
buildah buildah
/bin/busybox busybox-static
LIST
    [[ $scope != push && $scope != test ]] || echo 'skopeo skopeo'
    [[ $scope == test ]] || return 0
    cat <<'LIST'
curl curl
docker-registry docker-registry
c++ g++
ganesha.nfsd nfs-ganesha
/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so nfs-ganesha-vfs
nfs-ls libnfs-utils
mkfs.ext4 e2fsprogs
mkfs.xfs xfsprogs
mkfs.btrfs btrfs-progs
sshd openssh-server
tgtd tgt
exportfs nfs-kernel-server
smbd samba
smbclient smbclient
iscsi-inq libiscsi-bin
qemu-io qemu-utils
/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so qemu-block-extra
chromium chromium
/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf fonts-liberation
/usr/lib/python3.11/ensurepip/__init__.py python3-venv
LIST
}

missing_packages() {
    local what package
    while read -r what package; do
        case $what in
            /usr/include/*) [[ -e $what || -e /usr/include/x86_64-linux-gnu/${what#/usr/include/} ]] || echo "$package" ;;
            /*) [[ -e $what ]] || echo "$package" ;;
            *) command -v "$what" >/dev/null || echo "$package" ;;
        esac
    done < <(required) | sort -u
}

[[ $scope == push ]] || command -v cargo >/dev/null ||
    fail "cargo is missing" "install Rust 1.95 or newer (https://rustup.rs) so that 'cargo --version' works, and run it again"
[[ $scope == push || $scope == images ]] || command -v go >/dev/null ||
    fail "go is missing: Kubernetes is built from its Go modules" \
        "install Go 1.26 or newer (https://go.dev/dl/) so that 'go version' works, and run it again"

case $scope in
    demo) warn_of_little_space 10 'the first run writes' ;;
    test) warn_of_little_space 20 'the first run writes' ;;
esac
mapfile -t missing < <(missing_packages)
if ((${#missing[@]} > 0)); then
    command -v apt-get >/dev/null ||
        fail "these Debian packages (or what they hold) are missing: ${missing[*]}" \
            "there is no apt-get here: install them by the means of this system and run it again"
    ((EUID == 0)) || fail "these Debian packages are missing: ${missing[*]}" "run as root: apt-get install ${missing[*]}"
    say "installing Debian packages, about a minute: ${missing[*]}"
    install_packages "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]} (its output is above)" \
            "check the package sources of this machine and run it again"
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]} == 0)) || fail "still missing after apt-get install: ${missing[*]}"
fi
[[ $scope != push && $scope != images && -z $only_packages ]] || exit 0
testing/cluster/setup.sh >/dev/null
# The tests need these programs. Building them now keeps that time out of the tests.
if [[ $scope == test ]]; then
    testing/cluster/snapshotter.sh >/dev/null
    for program in '' --mock --sanity; do testing/csi-driver/build.sh $program >/dev/null; done
    testing/s3/build.sh >/dev/null
    testing/openstack/setup.sh >/dev/null
fi
