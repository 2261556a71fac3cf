#!/usr/bin/env bash
# Creates and deletes thousands of claims in random order with failures, on a real control plane with a simulated node. At
# the end nothing may be left, and the orchestrator must not need more memory than before.
#
#   soak.sh [CLAIMS]     the number of claims, 10,000 by default; SEED=… repeats the random order of another run
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

CLAIMS=${1:-${CLAIMS:-10000}}
[[ $CLAIMS =~ ^[1-9][0-9]*$ ]] || fail "CLAIMS is '$CLAIMS', which is not a number of claims" "usage: soak.sh [CLAIMS]"

# No pod runs here, so images are not needed. The measured orchestrator is the shipped one.
testing/cluster/setup.sh --control-plane >/dev/null
cargo build --profile "$profile" --package flex-provisioner --bins >&2
export CLAIMS FLEX_PROVISIONER=$programs/flex-provisioner
exec cargo test --package flex-provisioner --test soak -- --nocapture
