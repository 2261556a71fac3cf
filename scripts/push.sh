#!/usr/bin/env bash
# Looks at the registry, builds what has changed, pushes the images, and writes the manifests that name these images by
# digest. Another call sends only what the registry does not have.
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

# Asks the registry before the long build whether it answers, in the way that the flags say, and whether it knows us.
# Whether it lets us write, only the push shows.
look() {
    local host=${registry%%/*} said
    said=$("${skopeo[@]}" --command-timeout 60s list-tags ${insecure:+--tls-verify=false} "docker://$registry/flex-provisioner" 2>&1 >/dev/null) &&
        return
    said=${said##*msg=}
    case $said in
        *'HTTP response to HTTPS client'* | *'does not look like a TLS handshake'*)
            fail "$host speaks plain HTTP" 'add INSECURE=1 (push.sh: --insecure), if you trust the network'
            ;;
        *x509:*)
            fail "the certificate of $host is of an authority that this machine does not know" \
                "put the authority into /etc/containers/certs.d/$host/ca.crt"
            ;;
        *'pinging container registry'*)
            fail "$host does not answer as a registry: $said" 'check the name and the port in REGISTRY, and the network'
            ;;
        *' 404 '* | *'name unknown'* | *'not found'*)
            say "$registry has no image flex-provisioner yet: a registry that makes no repositories by itself needs them first"
            ;;
        *)
            skopeo login --get-login "$host" >/dev/null 2>&1 ||
                fail "$host does not know you: $said" "log in and run this again: skopeo login $host"
            say "warning: $host did not list the tags of $registry/flex-provisioner: $said"
            ;;
    esac
}

scripts/setup.sh --push
# The archives are our own, so that the machine's policy on images of others does not apply.
skopeo=(skopeo --insecure-policy)
look
if [[ -n $compile ]]; then
    say 'building the images: 10 to 45 minutes on 2 processors the first time, then only what has changed'
    CARGO_TERM_QUIET=true scripts/images.sh
fi

mapfile -t names < <(provisioner-images/images.sh --list | cut -d' ' -f1)
for name in "${names[@]}"; do
    [[ -f build/images/$name.tar ]] ||
        fail "build/images/$name.tar is missing" "run \`make images\`, or bring the archives here"
done

copy=("${skopeo[@]}" copy --quiet --preserve-digests --retry-times 3)
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
say "${#pushed[@]} images are in $registry, after $((SECONDS / 60)) minutes and $((SECONDS % 60)) seconds"
scripts/manifests.sh --registry "$registry" --version "$version" --out "$out" --kubernetes "$kubernetes" \
    --pull-secret "$pull_secret"
