#!/usr/bin/env bash
# Brings the images and the chart of a release to the registry that it names, or to another one, after a check of the release.
#
#   publish.sh [DIR] [--registry HOST/PATH] [--insecure]
#
#   DIR           the default is dist
#   --registry    another registry, such as that of a closed network; manifests and chart still name the first one
#   --insecure    the registry speaks plain HTTP, or its certificate is not verified
#
# Credentials are those of `skopeo login HOST` and `helm registry login HOST`. The chart goes to HOST/PATH/charts, because the
# image of the orchestrator has the chart's name.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dist=dist registry='' insecure=''
while (($#)); do
    case $1 in
        --registry)
            (($# > 1)) || fail "$1 has no value"
            registry=$2
            shift
            ;;
        --insecure) insecure=yes ;;
        -*) fail "unknown argument $1" "usage: publish.sh [DIR] [--registry HOST/PATH] [--insecure]" ;;
        *) dist=$1 ;;
    esac
    shift
done
scripts/release/verify.sh "$dist"
scripts/setup.sh --push

# The archives are our own, so that the machine's policy on images of others does not apply.
copy=(skopeo --insecure-policy copy --all --preserve-digests --retry-times 3) push=()
if [[ -n $insecure ]]; then copy+=(--dest-tls-verify=false) push+=(--plain-http); fi
while IFS=@ read -r reference _; do
    image=${reference##*/}
    registry=${registry:-${reference%/*}}
    say "pushing $registry/$image"
    "${copy[@]}" "oci-archive:$dist/images/${image%:*}.tar" "docker://$registry/$image" >&2 ||
        fail "skopeo could not push $registry/$image (its output is above)" \
            "if it was refused, log in and run this again: skopeo login ${registry%%/*}"
done <"$dist/images.txt"
"$(scripts/helm.sh)" push "${push[@]}" "$dist"/flex-provisioner-[0-9]*.tgz "oci://$registry/charts" >&2 ||
    fail "helm could not push the chart (its output is above)" "if it was refused: helm registry login ${registry%%/*}"
image=$registry/flex-provisioner
say "pushed; to install: helm install flex-provisioner oci://$registry/charts/flex-provisioner" \
    "--set image.registry=${image%%/*} --set image.repository=${image#*/}"
