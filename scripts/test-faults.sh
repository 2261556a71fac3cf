#!/usr/bin/env bash
# Runs only the tests of crashes, races and bad input, and all of them. The last line is the summary.
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/faults.sh
source scripts/faults.sh

need_root "a test with a real Kubernetes"
ends_with faults_line
# This is the long form: the tests cut before and after each write.
export FLEX_CUTS_ALL=yes

stage 'setup' scripts/setup.sh --test
stage 'programs, tests and images' build_with_tests
stage 'fuzzers' scripts/fuzz.sh --build
begin_computing
faults_stages "$@"
