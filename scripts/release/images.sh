#!/usr/bin/env bash
# Builds the images of a release: for each name an OCI archive with an index of all processors, the list of the images with
# their digests, and the list of the parts of each image. The programs are there already.
#
#   images.sh --registry HOST/PATH --architectures 'amd64 arm64' --out DIR
#
# Ends with 69 if an image is there for some of the processors alone, because this machine does not emulate the others.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

registry='' architectures='' out=''
read_flags "images.sh --registry HOST/PATH --architectures 'amd64 arm64' --out DIR" registry architectures out -- "$@"
version=$(scripts/version.sh)

# Builds an image for some processors, prints its archive, and lists its parts.
build() { # ARCHITECTURE NAME PROGRAM...
    local architecture=$1 name=$2 archive target program parts=()
    shift 2
    target=$(scripts/release/cross.sh --target "$architecture")
    archive=$(CARGO_BUILD_TARGET=$target FLEX_PROFILE=release provisioner-images/images.sh --no-build "$name") || return
    for program in "$@"; do parts+=("$out/sbom/$program-linux-$architecture.cdx.json"); done
    scripts/release/sbom.py image "$archive" "$name" "$version" "${parts[@]}" \
        >"$out/sbom/image-$name-$architecture.cdx.json" || return
    echo "$archive"
}

status=0
mkdir -p "$out/images"
: >"$out/images.txt"
while read -r name programs; do
    archives=()
    for architecture in $architectures; do
        failed=0
        # shellcheck disable=SC2086  # words
        archive=$(build "$architecture" "$name" $programs) || failed=$?
        case $failed in
            0) archives+=("$archive") ;;
            69) say "error: the image $name was not built for $architecture" && status=69 ;;
            *) exit "$failed" ;;
        esac
    done
    ((${#archives[@]})) || fail "the image $name was built for no processors"
    digest=$(scripts/release/index.py "$out/images/$name.tar" "$registry/$name:$version" "${archives[@]}")
    echo "$registry/$name:$version@$digest" >>"$out/images.txt"
    say "wrote $out/images/$name.tar, with ${#archives[@]} images"
done < <(provisioner-images/images.sh --list)
exit "$status"
