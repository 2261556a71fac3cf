#!/usr/bin/env bash
# The tests of the Cinder image alone, against a real Cinder and a real Keystone.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test that runs the image as its own user"

ends_with all_passed
all_passed() { echo 'all tests of the Cinder image passed'; }

stage 'setup' scripts/setup.sh --test
stage 'build the tests' cargo test --package cinder-provisioner --no-run
budget=180 stage 'tests' cargo test --package cinder-provisioner --no-fail-fast
