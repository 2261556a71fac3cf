#!/usr/bin/env bash
# Runs the blocks of the manual that are marked to run, on a cluster of its own. docs/internals/manual.md has their form.
#
#   test-docs.sh [PAGE…]     these pages, such as docs/how-to/pools.md; without a page, the whole manual
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a cluster"
own_cluster docs
SNAPSHOT_CRDS=$(testing/cluster/snapshotter.sh | tail -n 1)/crds
export SNAPSHOT_CRDS
scripts/run_manual.py "$@"
