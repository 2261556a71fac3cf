#!/usr/bin/env bash
# Ends a cluster and removes all of it: cluster-down.sh [NAME]
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
need_root "the cluster"
flex_cluster --name "${1:-demo}" down
