#!/usr/bin/env bash
# All tests, from nothing: installs and builds what is missing, runs them, and takes the tests' cluster down.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"

end() {
    local status=$?
    trap - EXIT
    # Without the program no cluster was started.
    if [[ -x $release/flex-cluster ]]; then flex_cluster --tests down || status=1; fi
    summary
    if ((status == 0)); then echo 'all tests passed'; else echo "make test FAILED (exit code $status)"; fi
    exit "$status"
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

stage 'setup' scripts/setup.sh --test
stage 'programs and images' build
stage 'build the tests' cargo test --workspace --no-run
stage 'tests' cargo test --workspace --no-fail-fast
