#!/usr/bin/env bash
# The whole story on a real Kubernetes, step by step with times; fails unless every step was seen. Builds what is
# missing. The cluster stays up, `make cluster-down` ends it.
#
#   demo.sh [NAME]     the cluster's name, `demo` if none is given
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

name=${1:-demo}
scripts/cluster-up.sh "$name" flex-demo >/dev/null
say "cluster and orchestrator are up after $SECONDS s"
"$programs/flex-demo" --cluster "$name" --root "$root"
