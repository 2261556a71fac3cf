#!/usr/bin/env bash
# Runs the story of the README's moving picture on the demo cluster, which it starts if it is missing and which stays up,
# and writes docs/recording.json and docs/recording.svg.
#
#   recording.sh [NAME [--check]]     the cluster's name, `demo` by default. With --check nothing is written: the script
#                                     fails unless a fresh run has the commands and words of the picture
export FLEX_PROFILE=${FLEX_PROFILE:-dev}
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "the cluster"
name=${1:-demo}
scripts/cluster-up.sh "$name" >/dev/null
kubectl() { "$programs/flex-cluster" --name "$name" kubectl "$@"; }
if ! kubectl get crd/volumesnapshots.snapshot.storage.k8s.io >/dev/null 2>&1; then
    # No snapshot-controller comes with them: volumes that are not CSI need none.
    kubectl apply --server-side -f "$(testing/cluster/snapshotter.sh | tail -n 1)/crds" >/dev/null
    kubectl wait --for=condition=Established --timeout=50s crd/volumesnapshots.snapshot.storage.k8s.io >/dev/null
    # A new pod serves snapshots from its start, and cluster-up.sh waits until it leads. The old one looks only now and then.
    kubectl -n flex-provisioner rollout restart deployment/flex-provisioner >/dev/null
    scripts/cluster-up.sh "$name" >/dev/null
fi

# The commands of the story name no namespace, as a person's with a context of their own.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
kubectl config view --raw --flatten >"$tools/kubeconfig"
printf '#!/bin/sh\nexec %q --name %q kubectl --kubeconfig %q "$@"\n' \
    "$programs/flex-cluster" "$name" "$tools/kubeconfig" >"$tools/kubectl"
chmod +x "$tools/kubectl"
unset -f kubectl
export PATH=$tools:$PATH
kubectl config set-context --current --namespace=recording >/dev/null
scripts/recording/record.py "${@:2}"
