#!/usr/bin/env bash
# Runs Kubernetes' own storage specs against the class `hostpath`, on a cluster of its own with two nodes. testing/e2e-suite
# has the drivers that say what the class can, and the rules for specs that do not apply. The output of the specs goes to
# build/e2e-suite.log, their outcomes to the terminal.
#
#   test-e2e-suite.sh [REGEXP]   all specs, or those whose names match
export FLEX_PROFILE=dev NODES=2
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a cluster"
suite=testing/e2e-suite
log=build/e2e-suite.log
name=e2e-suite
namespace=flex-provisioner

# Prints each directory and device of a volume on the nodes. The first node has the disk of the machine.
storage() {
    local disk
    for disk in '' "${KUBECONFIG%/*}"/node-*/disk; do
        find "$disk"/var/lib/flex-hostpath{,-block} -mindepth 1 -maxdepth 1 2>/dev/null || true
    done
    find /dev/flex-hostpath -mindepth 1 2>/dev/null || true
}

# Prints each object of a volume or a run.
objects() {
    kubectl get persistentvolumes,volumesnapshotcontents,jobs --namespace "$namespace" --output name
}

install_classes() {
    kubectl apply --server-side -f "$(testing/cluster/snapshotter.sh | tail -n 1)/crds"
    kubectl wait --for=condition=Established --timeout=50s crd/volumesnapshotclasses.snapshot.storage.k8s.io
    kubectl apply -f configmaps/hostpath.yaml -f configmaps/hostpath-block.yaml -f $suite/classes.yaml
    kubectl --namespace "$namespace" rollout status --timeout=2m daemonset/hostpath-keeper
    kubectl --namespace "$namespace" rollout status --timeout=2m daemonset/hostpath-block-attach
    "$programs/flex-cluster" --name $name import "$built"/*.tar
}

# Runs the specs. Their outcomes are in the file `verdict`, whose last line is the sum.
specs() { # REGEXP
    local -a drivers=()
    local driver
    for driver in "$suite"/drivers/*.yaml; do drivers+=("-storage.testdriver=$driver"); done
    mkdir -p "${log%/*}"
    "$built/e2e-suite" -kubeconfig "$KUBECONFIG" -provider skeleton -rules $suite/rules.yaml -verdict "$verdict" \
        -ginkgo.no-color "${drivers[@]}" -specs "$1" >$log 2>&1
}

# Waits until nothing remains that was not there before. The DaemonSet removes directories some seconds later.
nothing_remains() {
    local deadline=$((SECONDS + 120))
    while storage | sort >"$work/after" && remaining=$(comm -13 "$work/before" "$work/after" && objects) && [[ -n $remaining ]]; do
        ((SECONDS < deadline)) || return 1
        sleep 2
    done
}

scripts/setup.sh
built=$($suite/build.sh | tail -n 1)
own_cluster $name
# The end of the cluster removes this folder too.
work=$tools
verdict=$work/verdict
install_classes >&2
storage | sort >"$work/before"
say "running the storage specs of Kubernetes, about half an hour; their output goes to $log"
status=0
specs "${1:-}" || status=$?
cat "$verdict" || fail "the specs did not end; the end of $log:" "$(tail -n 20 $log)"
nothing_remains || fail "these volumes or runs remain after the specs:" "$remaining"
say "volumes on the nodes: $(wc -l <"$work/before") before, $(wc -l <"$work/after") after, and no object of a volume remains"
tail -n 1 "$verdict"
exit "$status"
