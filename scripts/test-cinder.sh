#!/usr/bin/env bash
# Runs only the tests of the Cinder image, against a real Cinder and a real Keystone.
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"

ends_with all_passed
all_passed() { echo 'all tests of the Cinder image passed'; }

stage 'setup' scripts/setup.sh --test
stage 'programs, tests and images' build_with_tests
budget=180 stage 'the image' cargo test --workspace --no-fail-fast --test cinder
budget=120 stage 'conformance of slow images' cargo test --workspace --test desk -- --ignored shipped::
budget=180 stage 'with the orchestrator' cargo test --workspace --test api --test e2e --no-fail-fast cinder:: -- --nocapture
