#!/usr/bin/env bash
# Builds what has changed, pushes the images to a registry, and writes the manifests that name these images by digest.
# Another call sends only what the registry does not have.
#
#   push.sh --registry HOST/PATH [--version TAG] [--insecure] [--no-build] [--out DIR] [options of manifests.sh]
#
#   --insecure    the registry speaks plain HTTP, or its certificate is not verified
#   --no-build    takes the archives of build/images as they are, on a machine without a compiler
#
# Credentials are those of `skopeo login HOST`.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/registry.sh
source scripts/registry.sh

usage='make push REGISTRY=registry.example.org/team [VERSION=…] [INSECURE=1] [KUBERNETES=…] [PULL_SECRET=…]'
read_options "$usage" "$@"
if [[ -n $compile ]]; then scripts/images.sh; fi
scripts/setup.sh --push

mapfile -t names < <(provisioner-images/images.sh --list | cut -d' ' -f1)
for name in "${names[@]}"; do
    [[ -f build/images/$name.tar ]] ||
        fail "build/images/$name.tar is missing" "run \`make images\`, or bring the archives here"
done

# The archives are our own, so that the machine's policy on images of others does not apply.
copy=(skopeo --insecure-policy copy --preserve-digests --retry-times 3)
if [[ -n $insecure ]]; then copy+=(--dest-tls-verify=false); fi
pushed=()
for name in "${names[@]}"; do
    digest=$(digest_of "build/images/$name.tar")
    say "pushing $registry/$name:$version"
    "${copy[@]}" "oci-archive:build/images/$name.tar" "docker://$registry/$name:$version" >&2 ||
        fail "skopeo could not push $registry/$name:$version (its output is above)" \
            "if it was refused, log in and run this again: skopeo login ${registry%%/*}" \
            "if the registry speaks plain HTTP, add INSECURE=1 (push.sh: --insecure)"
    pushed+=("$registry/$name:$version@$digest")
done
mkdir -p "$out"
printf '%s\n' "${pushed[@]}" >"$out/images.txt"
scripts/manifests.sh --registry "$registry" --version "$version" --out "$out" --kubernetes "$kubernetes" \
    --pull-secret "$pull_secret"
