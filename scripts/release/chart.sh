#!/usr/bin/env bash
# Packs the Helm chart of a release, which names the release's registry, and writes values.yaml with the images' digests.
#
#   chart.sh --registry HOST/PATH --version VERSION --out DIR
#
# DIR has the file images.txt.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

registry='' version='' out=''
read_flags "chart.sh --registry HOST/PATH --version VERSION --out DIR" registry version out -- "$@"
[[ -f $out/images.txt ]] || fail "$out/images.txt is missing" "build the images first"
host=${registry%%/*} path=${registry#"${registry%%/*}"}
path=${path#/}
repository=${path:+$path/}flex-provisioner

digest_of() { # IMAGE
    local digest
    digest=$(awk -v start="$registry/$1:$version@" 'index($0, start) == 1 { print substr($0, length(start) + 1) }' \
        "$out/images.txt")
    [[ -n $digest ]] || fail "$out/images.txt has no image $registry/$1:$version"
    echo "$digest"
}

# Replaces the names of images that this checkout builds by those of the registry.
name_registry() { # CHART
    sed -i -e "s#^  registry: localhost\$#  registry: $host#" \
        -e "s#^  repository: flex-provisioner/flex-provisioner\$#  repository: $repository#" "$1/values.yaml"
    sed -i "s#deploy/helm/flex-provisioner --#oci://$registry/charts/flex-provisioner --version $version --#" "$1/README.md"
    sed -i -e "s#localhost/flex-provisioner/#$registry/#" "$1/Chart.yaml"
    if grep -rn "localhost/\|registry: localhost\$" "$1" >&2 || ! grep -q "^  registry: $host\$" "$1/values.yaml"; then
        fail "the chart still names an image that only this machine has" "chart.sh no longer knows how its files name images"
    fi
}

write_values() {
    local name
    cat <<YAML
# The images of release $version by digest: helm install … --values values.yaml
image:
  registry: $host
  repository: $repository
  digest: $(digest_of flex-provisioner)
shellImage:
  digest: $(digest_of shell)
# For the classes of a preset, in classes.NAME:
YAML
    while read -r name _; do
        case $name in flex-provisioner | shell) continue ;; esac
        echo "# image: {digest: $(digest_of "$name")}   # $name"
    done < <(provisioner-images/images.sh --list)
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
write_values >"$out/values.yaml"
cp -R deploy/helm/flex-provisioner "$work/flex-provisioner"
name_registry "$work/flex-provisioner"
helm=$(scripts/helm.sh) || fail "helm could not be built (the output is above)" "it needs Go, see scripts/helm.sh"
"$helm" lint --strict --quiet --values "$out/values.yaml" "$work/flex-provisioner" >&2
"$helm" package --version "$version" --app-version "$version" --destination "$work" "$work/flex-provisioner" >&2
# helm writes the present time into its archive. This one has the same bytes each time.
mkdir "$work/packed"
tar --extract --file "$work/flex-provisioner-$version.tgz" --directory "$work/packed"
scripts/release/archive.py "$out/flex-provisioner-$version.tgz" "$work/packed"
say "wrote $out/flex-provisioner-$version.tgz and $out/values.yaml"
