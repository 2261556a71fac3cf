#!/usr/bin/env bash
# Claims by the thousand, created and deleted in random order with failures, on a real control plane with a simulated
# node: at the end nothing is left, and the orchestrator's memory is what it was.
#
#   soak.sh [CLAIMS]     10,000 if no number is given; SEED=… repeats the chances of another run
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

CLAIMS=${1:-${CLAIMS:-10000}}
[[ $CLAIMS =~ ^[1-9][0-9]*$ ]] || fail "CLAIMS is '$CLAIMS', which is not a number of claims" "usage: soak.sh [CLAIMS]"

# Nothing here runs a pod, so images are not needed; what is measured is the program as it is shipped.
testing/cluster/setup.sh --control-plane >/dev/null
cargo build --profile "$profile" --package flex-provisioner --bins >&2
export CLAIMS FLEX_PROVISIONER=$programs/flex-provisioner
exec cargo test --package flex-provisioner --test soak -- --nocapture
