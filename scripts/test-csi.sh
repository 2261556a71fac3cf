#!/usr/bin/env bash
# Runs only the tests of the CSI image: against a driver with scripted answers, and through the orchestrator.
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"

ends_with all_passed
all_passed() { echo 'all tests of the CSI image passed'; }

stage 'setup' scripts/setup.sh --test
stage 'programs, tests and images' build_with_tests
export FLEX_PROVISIONER=$programs/flex-provisioner
budget=120 stage 'the image' cargo test --workspace --bin csi-provisioner --test csi --test generated
budget=60 stage 'the CSI driver of the tests' testing/csi-driver/sanity.sh
# The script starts the whole cluster for these tests.
budget=180 stage 'with the orchestrator' cargo test --workspace --test api --test e2e --no-fail-fast csi:: -- --nocapture
