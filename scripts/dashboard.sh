#!/usr/bin/env bash
# Checks the dashboard of Grafana with the data of a real run, on a cluster of its own: a Prometheus scrapes the
# orchestrator while claims are bound, fail and are deleted, and each panel must have data.
#
#   dashboard.sh [PICTURE]     draws the panels into PICTURE, build/dashboard.png by default
export FLEX_PROFILE=quick
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a cluster"
picture=${1:-build/dashboard.png}
name=dashboard
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

scripts/setup.sh --test
prometheus=$(scripts/promtool.sh prometheus)
KUBECONFIG=$(scripts/cluster-up.sh $name | tail -n 1)
export KUBECONFIG
printf '#!/bin/sh\nexec %q --name %s kubectl "$@"\n' "$programs/flex-cluster" $name >"$tools/kubectl"
chmod +x "$tools/kubectl"
mkdir -p "$(dirname "$picture")"
PATH=$tools:$programs:$PATH scripts/dashboard.py "$prometheus" --picture "$picture"
say "the picture is $picture"
