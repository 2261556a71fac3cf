#!/usr/bin/env bash
# The tests of crashes, races and bad input alone, all of them, with a line at the end that sums up.
export FLEX_PROFILE=quick
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/faults.sh
source scripts/faults.sh

need_root "a test with a real Kubernetes"
ends_with faults_line
# This is the long form: everything is cut off before and after each write.
export FLEX_CUTS_ALL=yes

stage 'setup' scripts/setup.sh --test
without=flex-bench stage 'programs and images' build
stage 'build the tests' build_faults
begin_computing
faults_stages
