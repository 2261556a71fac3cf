#!/usr/bin/env bash
# Runs some of the integration tests, with programs and images as `make test` builds them.
#
#   test-it.sh [FILTER…]     tests whose names contain a filter: `limits::`, `shipped::` for configs and examples with pods, …
export FLEX_PROFILE=quick
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"
end() { flex_cluster --tests down; }
trap end EXIT
scripts/setup.sh --test
without=flex-bench build
export FLEX_PROVISIONER=$programs/flex-provisioner
cargo test --workspace --no-fail-fast --test api --test e2e -- "$@"
