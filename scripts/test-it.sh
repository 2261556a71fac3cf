#!/usr/bin/env bash
# Runs some of the integration tests, with programs and images as `make test` builds them.
#
#   test-it.sh [FILTER…]                tests whose names contain a filter: `limits::`, `shipped::` for configs and examples
#                                       with pods, …
#   test-it.sh CARGO'S FLAG… -- [ARGUMENT…]   other tests, such as `--test desk -- --exact attempt::NAME`
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"
end() { flex_cluster --tests down; }
trap end EXIT
scripts/setup.sh --test
build_with_tests
export FLEX_PROVISIONER=$programs/flex-provisioner
targets=(--test api --test e2e)
if [[ " $* " == *' -- '* ]]; then
    targets=()
    while [[ $1 != -- ]]; do targets+=("$1") && shift; done
    shift
fi
cargo test --workspace --no-fail-fast "${targets[@]}" -- "$@"
