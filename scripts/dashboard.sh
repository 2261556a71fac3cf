#!/usr/bin/env bash
# Checks the dashboard of Grafana with the data of a real run, on a cluster of its own: a Prometheus scrapes the
# orchestrator while claims are bound, fail and are deleted, and each panel must have data.
#
#   dashboard.sh [PICTURE]     draws the panels into PICTURE, build/dashboard.png by default
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a cluster"
picture=${1:-build/dashboard.png}
scripts/setup.sh --test
prometheus=$(scripts/promtool.sh prometheus)
own_cluster dashboard
mkdir -p "$(dirname "$picture")"
scripts/dashboard.py "$prometheus" --picture "$picture"
say "the picture is $picture"
