#!/usr/bin/env bash
# Builds all images from static binaries and Dockerfiles FROM scratch, into
# build/images/NAME.tar (OCI archives, as `ctr images import` and `skopeo copy` take them), and prints their paths.
# A folder with a file `packages` gets these Debian packages, which apt downloads once into build/packages. All else is
# offline, unless the images are for a release.
# The script builds only images whose inputs have changed. Run it as root; it needs no daemon and no registry.
#
#   images.sh [--no-build] [NAME...]     --no-build takes the programs as they are
#   images.sh --list                     prints each image's name and its programs, and builds nothing
#   FLEX_PROFILE=dev                     with the programs that tests build, not those of `release`
#   CARGO_BUILD_TARGET=aarch64-…         for other processors than those of this machine, into build/images/arm64
#   FLEX_REVISION=COMMIT                 for a release: with labels, and with nothing of this machine
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$("$root/scripts/version.sh")
prefix=localhost/flex-provisioner
# shellcheck source=scripts/static.sh
source "$root/scripts/static.sh"
profile=${FLEX_PROFILE:-release}
programs=${CARGO_TARGET_DIR:-$root/target}/$CARGO_BUILD_TARGET/${profile/#dev/debug}
# The processors of the images, by Debian's and Docker's name. Those of this machine need no folder of their own.
case ${CARGO_BUILD_TARGET%%-*} in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=${CARGO_BUILD_TARGET%%-*} ;;
esac
foreign=''
if [[ ${CARGO_BUILD_TARGET%%-*} != "$(uname -m)" ]]; then foreign=yes; fi
revision=${FLEX_REVISION:-}
out=$root/build/images${foreign:+/$architecture}
cache=$root/build/packages${foreign:+/$architecture}
cd "$root"

say() { printf '%s\n' "$*" >&2; }

# Lists the orchestrator, whose image also has the tool for people, and every folder here with a Dockerfile. A folder with
# a Cargo.toml is a program. A folder without a Cargo.toml is a script, which gets a shell and flex-pv. The script may be
# in the folder or in a config.
orchestrator=flex-provisioner
dockerfile() { if [[ $1 == "$orchestrator" ]]; then echo deploy/Dockerfile; else echo "provisioner-images/$1/Dockerfile"; fi; }
is_script() { [[ $1 != "$orchestrator" && ! -f provisioner-images/$1/Cargo.toml ]]; }
packages() {
    if [[ $1 == "$orchestrator" ]]; then
        echo flex-provisioner flex-tool
    elif is_script "$1"; then
        echo flex-image-kit
    else
        sed -n 's/^name = "\(.*\)"$/\1/p' "provisioner-images/$1/Cargo.toml" | head -1
    fi
}
binaries() {
    if [[ $1 == "$orchestrator" ]]; then
        echo flex-orchestrator flex-provisioner
    elif is_script "$1"; then
        echo flex-pv
    else
        packages "$1"
    fi
}

need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null && return
    say "installing $2"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" >&2 </dev/null
}

# Runs a program, and prints what it says only if it fails.
quietly() { # COMMAND...
    local said status=0
    said=$("$@" 2>&1 </dev/null) || status=$?
    if ((status != 0)); then say "$said"; fi
    return "$status"
}

# A program that needs a shared library would not start in an image FROM scratch.
assert_static() {
    if [[ $(readelf --program-headers "$1") == *INTERP* ]]; then
        say "$1 is not static: build it with the flags of scripts/static.sh"
        exit 1
    fi
}

# Asks apt for packages of the images' processors, as if nothing were installed. The lists may be missing or old.
packages_of_debian() { # DIRECTORY COMMAND PACKAGE...
    local directory=$1 empty get status=0
    shift
    empty=$(mktemp)
    get=(apt-get --quiet=2 --no-install-recommends -o Dir::State::status="$empty" -o APT::Sandbox::User=root
        -o Dir::Cache::archives="$directory")
    if [[ -n $foreign ]]; then
        mkdir -p "$cache/lists/partial"
        get+=(-o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" -o Dir::State::lists="$cache/lists"
            -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
    fi
    mkdir -p "$directory/partial"
    (cd "$directory" && { "${get[@]}" "$@" || { "${get[@]}" update && "${get[@]}" "$@"; }; }) >&2 </dev/null || status=$?
    rm "$empty"
    ((status == 0)) || { say "apt-get could not bring ${*:2} (its output is above)"; exit 1; }
}

# Downloads the Debian packages of an image and their dependencies, unless they are there.
fetch_packages() { # NAME DIRECTORY
    local packages
    mapfile -t packages < <(sed -e 's/#.*//' -e '/^ *$/d' "provisioner-images/$1/packages")
    [[ -f $2/list && $(<"$2/list") == "${packages[*]}" ]] && return
    say "$1: getting Debian packages"
    rm -rf "$2"
    packages_of_debian "$2" install --download-only "${packages[@]}"
    echo "${packages[*]}" >"$2/list"
}

# Downloads one Debian package alone, unless it is there, and prints its path.
fetch_package() { # PACKAGE
    local directory=$cache/$1
    if ! compgen -G "$directory/$1_*.deb" >/dev/null; then packages_of_debian "$directory" download "$1"; fi
    compgen -G "$directory/$1_*.deb"
}

# Writes a package into the list of those that an image has, which scanners read.
record() { # ARCHIVE ROOT
    mkdir -p "$2/var/lib/dpkg"
    dpkg-deb --field "$1" | sed '1a Status: install ok installed' >>"$2/var/lib/dpkg/status"
    echo >>"$2/var/lib/dpkg/status"
}

# Removes what nothing in an image reads. The licences stay, because some must accompany their programs.
slim() { # ROOT
    rm -rf "$1"/usr/share/{bash-completion,info,initramfs-tools,lintian,locale,man,zsh} "$1"/usr/lib/*/gconv
    if [[ -d $1/usr/share/doc ]]; then
        find "$1/usr/share/doc" -type f ! -name copyright -delete
        find "$1/usr/share/doc" -type d -empty -delete
    fi
    find "$1" -type f -perm /6000 -exec chmod a-s {} +
}

# Says by files that this is Debian, and adds the texts of its licences, to which those of packages refer.
debian_files() { # ROOT
    local archive
    archive=$(fetch_package base-files)
    record "$archive" "$1"
    dpkg-deb --fsys-tarfile "$archive" | tar --extract --directory "$1" --wildcards './etc/debian_version' \
        './etc/os-release' './usr/lib/os-release' './usr/share/common-licenses' './usr/share/doc/base-files/copyright'
}

# Unpacks Debian packages without their scripts, documentation and translations. No program keeps the rights of its file.
debian_root() { # NAME DIRECTORY
    local archive
    fetch_packages "$1" "$cache/$1"
    mkdir -p "$2"
    for archive in "$cache/$1"/*.deb; do
        dpkg-deb --extract "$archive" "$2"
        record "$archive" "$2"
    done
    # A script of the package would do this.
    mkdir -p "$2/etc/ssl/certs"
    cat "$2"/usr/share/ca-certificates/mozilla/*.crt >"$2/etc/ssl/certs/ca-certificates.crt"
}

# Adds busybox: that of this machine, or for a release or for other processors that of Debian's package.
busybox() { # ROOT
    local archive
    if [[ -z $foreign && -z $revision ]]; then
        install -D /bin/busybox "$1/bin/busybox"
        return
    fi
    archive=$(fetch_package busybox-static)
    dpkg-deb --extract "$archive" "$1"
    record "$archive" "$1"
}

# Adds busybox with a link for each of its programs, and the names of root and of the default user. The names of the programs
# are those of this machine's busybox, because it cannot run that of other processors.
busybox_root() { # DIRECTORY
    mkdir -p "$1/bin" "$1/etc" "$1/tmp"
    chmod 1777 "$1/tmp"
    busybox "$1"
    assert_static "$1/bin/busybox"
    local name
    while read -r name; do
        # A package may have brought the program itself.
        [[ $name == busybox || -e $1/bin/$name || -L $1/bin/$name ]] || ln -s busybox "$1/bin/$name"
    done < <(/bin/busybox --list)
    printf 'root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n' >"$1/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$1/etc/group"
}

# Prepares all files that the Dockerfile of an image copies: the programs, and for a script the whole folder of the image.
context() { # NAME DIRECTORY
    local binary
    if is_script "$1"; then
        cp -R "provisioner-images/$1/." "$2"
        chmod -R u=rwX,go=rX "$2"
        # An editor does not make a new script executable.
        find "$2" -name '*.sh' -exec chmod a+x {} +
    fi
    for binary in $(binaries "$1"); do
        assert_static "$programs/$binary"
        install -m 0755 "$programs/$binary" "$2/$binary"
    done
    if is_script "$1"; then
        if [[ -f provisioner-images/$1/packages ]]; then debian_root "$1" "$2/root"; fi
        busybox_root "$2/root"
        if [[ -e $2/root/var/lib/dpkg/status ]]; then debian_files "$2/root"; fi
        slim "$2/root"
    fi
}

# Prints the labels of an image of a release, by the names of the OCI.
labels() { # NAME
    local licences=Apache-2.0 key=org.opencontainers.image
    [[ -n $revision ]] || return 0
    if is_script "$1"; then licences+=' AND GPL-2.0-only'; fi
    if [[ -f provisioner-images/$1/packages ]]; then licences+=' AND LicenseRef-Debian'; fi
    printf -- '--label\n%s\n' "$key.title=$1" "$key.version=$version" "$key.revision=$revision" \
        "$key.source=$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)" "$key.licenses=$licences" "$key.base.name=scratch"
}

# The check in a Dockerfile runs programs of the image. This machine's kernel must know who runs those of other processors.
# The exit code 69 tells a caller that can go on without these images.
assert_emulation() { # NAME
    [[ -n $foreign ]] && grep -q '^RUN ' "$(dockerfile "$1")" || return 0
    grep -qs enabled "/proc/sys/fs/binfmt_misc/qemu-${CARGO_BUILD_TARGET%%-*}" && return
    say "$1: this machine runs no programs of $architecture, which the image's Dockerfile does"
    say "on Debian: apt-get install qemu-user-static, which registers itself where systemd runs; elsewhere, as root:"
    say "  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc"
    say "  cat /usr/lib/binfmt.d/qemu-${CARGO_BUILD_TARGET%%-*}.conf >/proc/sys/fs/binfmt_misc/register"
    exit 69
}

# Prints one text for all inputs: names, modes, link targets and contents, not times.
inputs() { # NAME DIRECTORY
    cat "$(dockerfile "$1")"
    labels "$1"
    (cd "$2" && find . -printf '%p %m %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum)
    echo "$prefix/$1:$version, an OCI archive"
}

build() { # NAME
    local name=$1 work hash tar=$out/$1.tar
    work=$(mktemp -d "$root/build/image.XXXXXX")
    # shellcheck disable=SC2064  # now, because the variable is gone when the trap runs
    trap "rm -rf '$work'" RETURN EXIT
    mkdir "$work/context"
    context "$name" "$work/context"
    hash=$(inputs "$name" "$work/context" | sha256sum | cut -d' ' -f1)
    if [[ -f $tar && -f $tar.inputs && $(<"$tar.inputs") == "$hash" ]]; then
        say "$name: unchanged"
    else
        say "$name: building"
        # buildah gets storage folders of its own, so that it does not touch the machine's other images.
        local buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs) labels
        mapfile -t labels < <(labels "$name")
        quietly "${buildah[@]}" bud --quiet --isolation chroot --timestamp 0 --format oci --arch "$architecture" "${labels[@]}" \
            --tag "$prefix/$name:$version" --file "$(dockerfile "$name")" "$work/context"
        rm -f "$tar" "$tar.inputs"
        quietly "${buildah[@]}" push --quiet "$prefix/$name:$version" "oci-archive:$tar:$prefix/$name:$version"
        echo "$hash" >"$tar.inputs"
    fi
    echo "$tar"
}

compile=yes list=no
wanted=()
for argument in "$@"; do
    case $argument in
        --no-build) compile=no ;;
        --list) list=yes ;;
        -*) say "unknown option $argument; usage: images.sh [--no-build | --list] [NAME...]"; exit 64 ;;
        *) wanted+=("$argument") ;;
    esac
done
if [[ ${#wanted[@]} -eq 0 ]]; then
    for file in provisioner-images/*/Dockerfile; do wanted+=("$(basename "$(dirname "$file")")"); done
    wanted+=("$orchestrator")
fi
for name in "${wanted[@]}"; do
    [[ -f $(dockerfile "$name") ]] || { say "there is no image $name: $(dockerfile "$name") does not exist"; exit 64; }
done
if [[ $list == yes ]]; then
    for name in "${wanted[@]}"; do echo "$name $(binaries "$name")"; done
    exit
fi
if [[ $compile == yes ]]; then
    arguments=()
    for name in "${wanted[@]}"; do
        for package in $(packages "$name"); do arguments+=(--package "$package"); done
        for binary in $(binaries "$name"); do arguments+=(--bin "$binary"); done
    done
    cargo build --profile "$profile" "${arguments[@]}" >&2 </dev/null
fi
need buildah buildah
need readelf binutils
[[ -x /bin/busybox ]] || need busybox busybox-static
mkdir -p "$out"
for name in "${wanted[@]}"; do assert_emulation "$name"; done
for name in "${wanted[@]}"; do build "$name"; done
