#!/usr/bin/env bash
# Shows the whole story on a real Kubernetes, step by step with times. Fails unless it sees every step. Builds what is
# missing, by the profile of the tests. The cluster stays up, and `make cluster-down` ends it.
#
#   demo.sh [NAME]     the cluster's name, `demo` by default
export FLEX_PROFILE=${FLEX_PROFILE:-dev}
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

name=${1:-demo}
scripts/cluster-up.sh "$name" flex-demo >/dev/null
say "cluster and orchestrator are up after $SECONDS s"
"$programs/flex-demo" --cluster "$name" --root "$root"
