#!/usr/bin/env bash
# Writes the files that install the orchestrator from a registry: install.yaml, quickstart.yaml with a first class,
# claim.yaml with a claim of this class, the configs and examples with the names of their images in the registry, and
# values.yaml for the Helm chart.
# Needs no kubectl, no compiler and no network.
#
#   manifests.sh --registry HOST/PATH [--version TAG] [--out DIR] [--kubernetes VERSION] [--pull-secret NAME]
#
#   --version       the tag of the images; the default is the version of this checkout
#   --out           where to write; the default is build/install
#   --kubernetes    the version of the cluster; the default is 1.36; older versions do not serve mutating admission policies
#   --pull-secret   a Secret in the namespace flex-provisioner by which nodes pull the images
#
# If push.sh has pushed an image to this registry with this tag, the files name its digest too.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/registry.sh
source scripts/registry.sh

usage='make manifests REGISTRY=registry.example.org/team [VERSION=…] [KUBERNETES=…] [PULL_SECRET=…]'
read_options "$usage" "$@"
ours=$(scripts/version.sh)
namespace=$(sed -n 's/^namespace: //p' deploy/kustomize/kustomization.yaml)
minor=${kubernetes#v}
minor=${minor#1.}
minor=${minor%%[!0-9]*}
mutating=yes
if ((minor < 36)); then mutating=no; fi

# Names an image by its tag, and by its digest if it was pushed.
reference() { # NAME
    local tagged=$registry/$1:$version pushed=''
    if [[ -f $out/images.txt ]]; then
        pushed=$(awk -v start="$tagged@" 'index($0, start) == 1 { print; exit }' "$out/images.txt")
    fi
    echo "${pushed:-$tagged}"
}

replacements() {
    local name
    while read -r name _; do
        echo "s#localhost/flex-provisioner/$name:$ours#$(reference "$name")#g"
    done < <(provisioner-images/images.sh --list)
}

objects() { # NAMESPACE-OR-NOTHING FILE...
    local inside=$1
    shift
    awk -v namespace="$inside" -v mutating="$mutating" -v pull_secret="$pull_secret" -v labels="${labels:-}" \
        -f scripts/objects.awk "$@" |
        sed -f "$work/replacements"
}

# Prints the files of deploy/kustomize in the order of its list.
orchestrator() {
    local files labels kustomization=deploy/kustomize/kustomization.yaml
    mapfile -t files < <(sed -n '/^resources:/,$s#^- #deploy/kustomize/#p' "$kustomization")
    labels=$(sed -n '/^- pairs:/,/^  [a-z]/s/^    \([^ ]*\): \(.*\)/\1=\2/p' "$kustomization" | tr '\n' ' ')
    objects "$namespace" "${files[@]}"
}

# Prints the class of configmaps/hostpath.yaml under another name and directory, so that one cluster can have both.
first_class() {
    sed -E -e '1,/^apiVersion/{/^#/d}' -e 's#/var/lib/flex-hostpath#/var/lib/flex-local#g' \
        -e 's/^( *[a-z-]+: )hostpath$/\1flex-local/' -e 's/hostpath-(provisioner|keeper)/flex-local-\1/g' \
        -e 's/(flex-provisioner-image-)hostpath/\1flex-local/' configmaps/hostpath.yaml >"$work/class.yaml"
    cat >"$work/storageclass.yaml" <<'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: flex-local
  annotations:
    # "true" gives this class to claims that name no class.
    storageclass.kubernetes.io/is-default-class: "false"
provisioner: flex-provisioner.io
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
allowVolumeExpansion: true
YAML
    objects "$namespace" "$work/class.yaml" "$work/storageclass.yaml"
}

# Prints a claim of that class, and a pod that writes into its volume.
first_claim() {
    sed -e 's/: hostpath$/: flex-local/' -e 's/hostpath-/flex-local-/' -e '/^#/d' \
        examples/hostpath/claim.yaml >"$work/claim.yaml"
    sed -e 's/: hostpath-/: flex-local-/' -e '/^#/d' examples/hostpath/writer.yaml >"$work/writer.yaml"
    objects '' "$work/claim.yaml" "$work/writer.yaml"
}

# Prints the digest of an image as a value of the chart, if the image was pushed.
digest_value() { # NAME
    local named
    named=$(reference "$1")
    [[ $named != *@* ]] || echo "  digest: ${named#*@}"
}

chart_values() {
    local path=${registry#"${registry%%/*}"}/flex-provisioner
    echo "# The images of the Helm chart in $registry: helm install … --values values.yaml"
    printf 'image:\n  registry: %s\n  repository: %s\n  tag: "%s"\n' "${registry%%/*}" "${path#/}" "$version"
    digest_value flex-provisioner
    printf 'shellImage:\n  tag: "%s"\n' "$version"
    digest_value shell
    [[ -z $pull_secret ]] || printf 'imagePullSecrets: [%s]\n' "$pull_secret"
}

head_of() { # FILE CONTENTS...
    local file=$1 line
    shift
    echo "# The flex provisioner $version for Kubernetes $kubernetes or newer, with images from $registry."
    echo '#'
    for line in "$@"; do echo "# $line"; done
    echo '#'
    echo "# Install and upgrade:  kubectl apply -f $file"
    echo '# Remove: delete the claims of its classes, wait until their volumes are gone (kubectl get pv), and then'
    echo "#                       kubectl delete --ignore-not-found -f $file"
    echo '#                       kubectl delete --ignore-not-found csidriver flex-provisioner.io'
}

# Writes each file of a directory by itself. Claims and pods stay without a namespace: they belong to users.
files_of() { # DIRECTORY
    local file
    while read -r file; do
        mkdir -p "$work/files/${file%/*}"
        objects '' "$file" >"$work/files/$file"
    done < <(find "$1" -name '*.yaml')
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/files" "$out"
replacements >"$work/replacements"
policies='the validating admission policies'
if [[ $mutating == yes ]]; then policies='the admission policies'; fi
{
    head_of install.yaml "It installs the namespace $namespace, the orchestrator with its account and rights, and" \
        "$policies. A class needs a provisioner config besides: see configmaps/."
    orchestrator
} >"$work/files/install.yaml"
{
    head_of quickstart.yaml "It installs all of install.yaml: the namespace $namespace, the orchestrator with its" \
        "account and rights, and $policies." \
        'It also installs the class flex-local: config, account, binding, StorageClass and a DaemonSet.' \
        'The volumes of this class are directories below /var/lib/flex-local on the nodes.'
    orchestrator
    first_class
} >"$work/files/quickstart.yaml"
{
    echo '# A claim of the class flex-local, and a pod that writes into its volume.'
    first_claim
} >"$work/files/claim.yaml"
chart_values >"$work/files/values.yaml"
files_of configmaps
files_of examples
if left=$(grep -rn 'localhost/flex-provisioner' "$work/files"); then
    fail "these images are none of provisioner-images/: ${left//"$work/files/"/}" \
        "if their version is not $ours: run scripts/version.sh --write"
fi
cp -R "$work/files/." "$out/"
say "wrote install.yaml, quickstart.yaml, claim.yaml, values.yaml, configmaps/ and examples/ into $out"
say "the orchestrator and a first class, flex-local: kubectl apply -f $out/quickstart.yaml"
