#!/usr/bin/env bash
# All tests, from nothing: installs and builds what is missing, runs them, and takes the tests' cluster down.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/faults.sh
source scripts/faults.sh

need_root "a test with a real Kubernetes"

ends_with all_passed
all_passed() { faults_line; echo 'all tests passed'; }

stage 'setup' scripts/setup.sh --test
stage 'programs and images' build
stage 'build the tests' cargo test --workspace --no-run
begin_simulation
budget=600 stage 'tests' cargo test --workspace --no-fail-fast
short_faults_stages
