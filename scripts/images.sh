#!/usr/bin/env bash
# Builds the images, and nothing that they do not need. The last lines name the images, with the size of each archive in
# build/images and the digest that the image will have in a registry. Another call builds what has changed.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "building images"
scripts/setup.sh --images
mapfile -t needed < <(provisioner-images/images.sh --list | cut -d' ' -f2- | tr ' ' '\n' | sort -u)
build_only "${needed[@]}"

version=$(scripts/version.sh)
printf '%-26s %8s  %s\n' IMAGE SIZE DIGEST
while read -r name _; do
    archive=build/images/$name.tar
    size=$(du --apparent-size --human-readable "$archive" | cut -f1)
    digest=$(digest_of "$archive")
    printf '%-26s %8s  %s\n' "$name:$version" "$size" "$digest"
done < <(provisioner-images/images.sh --list)
say "the archives are in build/images; \`make push REGISTRY=…\` brings them to a registry"
