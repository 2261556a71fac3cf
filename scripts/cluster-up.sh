#!/usr/bin/env bash
# From nothing to a running orchestrator: installs what is missing, builds, starts the cluster, imports the images,
# applies deploy/kustomize, and waits until the orchestrator leads. Another call applies what has changed since.
# Progress goes to stderr; the last line on stdout is the path of the administrator's kubeconfig.
#
#   cluster-up.sh [NAME [PROGRAM...]]   the cluster's name, `demo` by default; further programs of ours to build
#   NODES=2                             the number of nodes, 1 by default; each further node has a disk of its own
#   LIMITS=raised                       1,000 requests a second for controller manager, scheduler and kubelet, not their defaults
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

name=${1:-demo}
limits=()
case ${LIMITS:-default} in
default) ;;
raised) limits=(--raised-limits) ;;
*) fail "LIMITS is $LIMITS" "it is \`default\` or \`raised\`" ;;
esac
nodes=${NODES:-1}
[[ $nodes == [1-8] ]] || fail "NODES is $nodes" "it is a number from 1 to 8"
namespace=flex-provisioner
# The programs that run in a cluster or start it, without those that only tests need.
users_programs=(flex-orchestrator flex-provisioner flex-pv nfs-provisioner cinder-provisioner csi-provisioner flex-cluster)
need_root "the cluster"

kubectl() { "$programs/flex-cluster" --name "$name" kubectl "$@"; }

# Says how long the build will take. Only before the first step can the script see what is missing.
plan() {
    local cache=${FLEX_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/flex-provisioner} minutes=0
    compgen -G "$cache/kubernetes-*/kubernetes" >/dev/null || minutes=$((minutes + 5))
    [[ -x $programs/flex-orchestrator && -x $programs/flex-cluster ]] || minutes=$((minutes + 5))
    ((minutes == 0)) || say "on 2 cores it takes about $minutes minutes to build what is missing, this one time"
}

# Imports an image if the cluster does not have it, or has another version of it.
import_images() {
    local marks=${kubeconfig%/*}/imported archive
    local -a new=()
    mkdir -p "$marks"
    for archive in build/images/*.tar; do
        cmp -s "$archive.inputs" "$marks/$(basename "$archive").inputs" || new+=("$archive")
    done
    ((${#new[@]} > 0)) || return 0
    say "importing ${new[*]##*/}"
    "$programs/flex-cluster" --name "$name" import "${new[@]}"
    for archive in "${new[@]}"; do cp "$archive.inputs" "$marks/"; done
}

# Applies the manifests. The image keeps its name when its content changes, so the pod template has the content's hash.
apply() {
    local overlay=build/deploy kustomization=kustomize
    mkdir -p "$overlay"
    if ! kubectl get --raw /apis/admissionregistration.k8s.io/v1 | grep -q mutatingadmissionpolicies; then
        kustomization=kustomize-before-1.36
    fi
    cat >"$overlay/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../deploy/$kustomization]
patches:
- target: {kind: Deployment, name: flex-provisioner}
  patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: flex-provisioner}
    spec:
      template:
        metadata:
          annotations: {flex-provisioner.io/image-inputs: "$(<build/images/flex-provisioner.tar.inputs)"}
YAML
    kubectl apply -k "$overlay" >&2
}

# Waits until the newest pod is ready and leads in place of the pod before it.
wait_until_leading() {
    local pod
    kubectl -n "$namespace" rollout status deployment/flex-provisioner --timeout=90s >&2 || return 1
    pod=$(kubectl -n "$namespace" get pods -l app.kubernetes.io/name=flex-provisioner \
        --sort-by=.metadata.creationTimestamp -o name | tail -n 1) || return 1
    kubectl -n "$namespace" wait --for=create lease/flex-provisioner-default --timeout=30s >&2 || return 1
    kubectl -n "$namespace" wait "--for=jsonpath={.spec.holderIdentity}=${pod#pod/}" \
        lease/flex-provisioner-default --timeout=30s >&2
}

what_is_wrong() {
    kubectl -n "$namespace" get pods,leases -o wide >&2 || true
    kubectl -n "$namespace" get events --sort-by=.lastTimestamp >&2 || true
    kubectl -n "$namespace" logs deployment/flex-provisioner --tail=50 >&2 || true
}

plan
scripts/setup.sh
build_only "${users_programs[@]}" "${@:2}"
say "starting cluster $name"
kubeconfig=$("$programs/flex-cluster" --name "$name" up --nodes "$nodes" "${limits[@]}" | tail -n 1)
import_images
apply
wait_until_leading || {
    what_is_wrong
    fail "the orchestrator is not ready; its pods, events and log are above" \
        "the logs of the cluster are in ${kubeconfig%/*}/logs"
}
say "cluster $name is up and the orchestrator leads; its kubeconfig:"
echo "$kubeconfig"
