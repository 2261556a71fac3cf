#!/usr/bin/env bash
# Builds all images from static binaries and Dockerfiles FROM scratch, into
# build/images/NAME.tar (OCI archives, as `ctr images import` and `skopeo copy` take them), and prints their paths.
# A folder with a file `packages` gets these Debian packages, which apt downloads once into build/packages. All else is
# offline.
# The script builds only images whose inputs have changed. Run it as root; it needs no daemon and no registry.
#
#   images.sh [--no-build] [NAME...]     --no-build takes the programs as they are
#   images.sh --list                     prints each image's name and its programs, and builds nothing
#   FLEX_PROFILE=quick                   with the programs that tests build, not those of `release`
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$("$root/scripts/version.sh")
prefix=localhost/flex-provisioner
# shellcheck source=scripts/static.sh
source "$root/scripts/static.sh"
profile=${FLEX_PROFILE:-release}
programs=${CARGO_TARGET_DIR:-$root/target}/$CARGO_BUILD_TARGET/$profile
out=$root/build/images
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

# A program that needs a shared library would not start in an image FROM scratch.
assert_static() {
    if [[ $(readelf --program-headers "$1") == *INTERP* ]]; then
        say "$1 is not static: build it with the flags of scripts/static.sh"
        exit 1
    fi
}

# Downloads the Debian packages of an image and their dependencies, unless they are there. An empty status file says that
# nothing is installed.
fetch_packages() { # NAME DIRECTORY
    local packages empty get
    mapfile -t packages < <(sed -e 's/#.*//' -e '/^ *$/d' "provisioner-images/$1/packages")
    [[ -f $2/list && $(<"$2/list") == "${packages[*]}" ]] && return
    say "$1: getting Debian packages"
    rm -rf "$2"
    mkdir -p "$2/partial"
    empty=$(mktemp)
    get=(apt-get --quiet --yes --download-only --no-install-recommends -o Dir::State::status="$empty"
        -o Dir::Cache::archives="$2" -o APT::Sandbox::User=root install "${packages[@]}")
    # The lists of packages may be missing or old.
    "${get[@]}" >&2 </dev/null || { apt-get --quiet update >&2 </dev/null && "${get[@]}" >&2 </dev/null; } ||
        { say "apt-get could not bring the packages of $1 (its output is above)"; exit 1; }
    rm "$empty"
    echo "${packages[*]}" >"$2/list"
}

# Unpacks Debian packages without their scripts, documentation and translations. No program keeps the rights of its file.
debian_root() { # NAME DIRECTORY
    local cache=$root/build/packages/$1 archive
    fetch_packages "$1" "$cache"
    mkdir -p "$2"
    for archive in "$cache"/*.deb; do dpkg-deb --extract "$archive" "$2"; done
    rm -rf "$2"/usr/share/{bash-completion,doc,info,lintian,locale,man,zsh} "$2"/usr/lib/x86_64-linux-gnu/gconv
    find "$2" -type f -perm /6000 -exec chmod a-s {} +
    # A script of the package would do this.
    mkdir -p "$2/etc/ssl/certs"
    cat "$2"/usr/share/ca-certificates/mozilla/*.crt >"$2/etc/ssl/certs/ca-certificates.crt"
}

# Adds busybox with a link for each of its programs, and the names of root and of the default user.
busybox_root() { # DIRECTORY
    mkdir -p "$1/bin" "$1/etc" "$1/tmp"
    chmod 1777 "$1/tmp"
    cp /bin/busybox "$1/bin/busybox"
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
        assert_static /bin/busybox
        if [[ -f provisioner-images/$1/packages ]]; then debian_root "$1" "$2/root"; fi
        busybox_root "$2/root"
    fi
}

# Prints one text for all inputs: names, modes, link targets and contents, not times.
inputs() { # NAME DIRECTORY
    cat "$(dockerfile "$1")"
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
        local buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
        "${buildah[@]}" bud --quiet --isolation chroot --timestamp 0 --format oci \
            --tag "$prefix/$name:$version" --file "$(dockerfile "$name")" "$work/context" >/dev/null
        rm -f "$tar" "$tar.inputs"
        "${buildah[@]}" push --quiet "$prefix/$name:$version" "oci-archive:$tar:$prefix/$name:$version" >/dev/null
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
for name in "${wanted[@]}"; do build "$name"; done
