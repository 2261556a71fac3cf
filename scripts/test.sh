#!/usr/bin/env bash
# Runs all tests, from nothing: installs and builds what is missing, runs the tests, and removes the tests' cluster.
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/faults.sh
source scripts/faults.sh

need_root "a test with a real Kubernetes"
# A failed test prints its observations and the orchestrator's log. A backtrace would bury them.
export RUST_BACKTRACE=0

ends_with all_passed
all_passed() { faults_line; echo 'all tests passed'; }

# Runs a command with its temporary files in memory. Conformance makes and removes many small files, and ext4 searches for
# each new one among those that were removed in the last seconds: all cases on a shell program take 64 s of the processors
# on ext4, and 36 s in memory.
in_memory() ( # COMMAND...
    TMPDIR=$(mktemp -d)
    export TMPDIR
    # `stage` calls this where the shell does not stop at errors.
    mount -t tmpfs -o mode=1777 flex-tests "$TMPDIR" || exit
    trap 'umount -l "$TMPDIR" && rmdir "$TMPDIR"' EXIT
    "$@"
)
export -f in_memory

# The demo shows the main steps on a cluster of its own.
demonstrate() {
    local status=0
    scripts/demo.sh demo-test || status=$?
    flex_cluster --name demo-test down || status=1
    return "$status"
}

# The budget of all stages in seconds, if only Kubernetes was built before.
export whole=4200
stage 'packages' scripts/setup.sh --packages
# Linkers, downloads and pip leave a processor idle, which the compilers of Kubernetes and of this project share.
beside 'Kubernetes and servers' scripts/setup.sh --test
budget=700 stage 'programs, tests and images' build_with_tests
budget=60 stage 'fuzzers' scripts/fuzz.sh --build
stage 'Kubernetes and servers, the rest' joined 'Kubernetes and servers'
# `make test-faults` runs 100,000, and then also asks whether they have reached every rule.
export HISTORIES=${HISTORIES:-3000}
# What takes longest runs by a part, another one for each commit: a sixth of the cut points, and a third of the kills amid real
# pods and of the programs that conformance judges by all its cases. SHARE=0/1 runs all.
commits=$(git rev-list --count HEAD 2>/dev/null || echo 0)
export FLEX_CUTS_SHARE=${SHARE:-$((commits % 6))/6}
SHARE=${SHARE:-$((commits % 3))/3}
dear='passes_conformance|is_found_by_its_case|passes_every_case|passes_all_cases[a-z_]*|passes_behind_a_front|survive_[a-z_]+'
dear+='|pass(es)?_and_the_page_says_so|of_another_kind_pass|cases_pass_[a-z_]*|for_[a-z]+_keeps_the_contract'
mapfile -t left_out < <(grep -rhoE "\\b[a-z0-9_]+_($dear)\\b" provisioner-images/kit/tests/recipes crates/tool/tests/desk \
    tests/e2e/conformance.rs tests/whole_faults/kills.rs | sort -u |
    # In this order each part takes about the same time.
    rev | sort | rev |
    awk -v share="${SHARE%/*}" -v shares="${SHARE#*/}" '(NR - 1) % shares != share { print "--skip\n" $0 }')
# The computation must not begin sooner: beside a compiler it would slow the compiler by twice the time that it gains.
begin_computing
# So many tests run at a time. Most of them wait for a cluster or its pods: two at a time leave three quarters of two
# processors idle.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-2}
beside 'with pods' cargo test --workspace --no-fail-fast --test e2e -- "${left_out[@]}"
export RUST_TEST_THREADS=$((2 * RUST_TEST_THREADS))
budget=2000 stage 'tests' in_memory cargo test --workspace --no-fail-fast -- "${left_out[@]}"
budget=100 stage 'with pods, the rest' joined 'with pods'
unset RUST_TEST_THREADS
# The demonstration waits for its pods.
# Programs of clouds and drivers with a front before their server take minutes: `make test-cinder` runs them.
beside 'conformance of slow images' in_memory cargo test --workspace --test desk -- --ignored shipped:: \
    --skip fronted::the_shipped_c --skip fronted::the_shipped_s "${left_out[@]}"
budget=160 stage 'the demonstration' demonstrate
budget=150 stage 'conformance of slow images, its rest' joined 'conformance of slow images'
budget=30 stage 'the CSI driver of the tests' testing/csi-driver/sanity.sh
# The Cinder image and the stages of faults both wait most of the time.
beside 'the Cinder image' cargo test --workspace --no-fail-fast --test cinder
faults_stages "${left_out[@]}"
budget=60 stage 'the Cinder image, its rest' joined 'the Cinder image'
