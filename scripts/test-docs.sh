#!/usr/bin/env bash
# Runs the blocks of the manual that are marked to run, on a cluster of its own. docs/internals/manual.md has their form.
#
#   test-docs.sh [PAGE…]     these pages, such as docs/how-to/pools.md; without a page, the whole manual
export FLEX_PROFILE=quick
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a cluster"
name=docs
tools=$(mktemp -d)
end() {
    local status=$?
    trap - EXIT
    rm -rf "$tools"
    flex_cluster --name $name down || status=1
    exit "$status"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

KUBECONFIG=$(scripts/cluster-up.sh $name | tail -n 1)
SNAPSHOT_CRDS=$(testing/cluster/snapshotter.sh | tail -n 1)/crds
export KUBECONFIG SNAPSHOT_CRDS
printf '#!/bin/sh\nexec %q --name %s kubectl "$@"\n' "$programs/flex-cluster" $name >"$tools/kubectl"
chmod +x "$tools/kubectl"
PATH=$tools:$programs:$PATH scripts/run_manual.py "$@"
