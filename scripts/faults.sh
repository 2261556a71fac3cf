# shellcheck shell=bash
# The stages that show that nothing leaks and nothing gets stuck. Source this file after lib.sh. The caller calls
# `need_root` and sets the machine up.
#
# Each stage ends with a line of the form `WHAT N: …`, which `faults_line` sums up. Budgets are in
# seconds on 2 cores. A stage beyond its budget is named in the summary, and does not fail. The long forms:
#
#   target/…/debug/flex-sim --minutes 30         histories of the simulation; --seed N replays one
#   scripts/fuzz.sh --minutes 30 [TARGET…]         bad input
#   make test-faults                               cuts before and after every write in every scenario. `make test`
#                                                  skips the cuts before events and renewals of the Lease, those
#                                                  before all writes of scenarios that add something to a claim's
#                                                  life, and those in a state of the API that another cut has. Of the
#                                                  rest it runs a sixth, another one for each commit
#   make soak                                      10,000 claims

: "${programs:?lib.sh is to be sourced before}"
faults_said=$(mktemp)
export programs faults_said FLEX_PROVISIONER=$programs/flex-provisioner

# Runs a program and keeps its output for `faults_line`.
said() { # COMMAND...
    "$@" 2>&1 | tee -a "$faults_said"
    return "${PIPESTATUS[0]}"
}

# Begins the simulation and the fuzzers, which only compute, and whose outcome does not depend on their pace. They run while
# the other stages wait. When they ran before the others, on one of two processors, tests of 8 minutes had not ended after
# 14.
begin_computing() {
    beside 'what only computes' computing
}

computing() {
    renice -n 19 -p "$$" >/dev/null
    # If the kernel forbids this, the computation only takes more time from the others.
    [[ ! -e /proc/self/autogroup ]] || echo 19 >/proc/self/autogroup || true
    said simulation
    said scripts/fuzz.sh
    "$programs/flex-sim" --bugs
}

simulation() {
    "$programs/flex-sim" --histories "${HISTORIES:-100000}" 2>&1 | grep -v ' a second$'
    return "${PIPESTATUS[0]}"
}
export -f said computing simulation

cut_points() {
    said cargo test --workspace --test faults -- --nocapture
}

# Ends the cluster with nodes after its last test, so that the cluster takes no processor time from the next stages.
real_pods() { # ARGUMENT OF THE TESTS...
    cargo test --workspace --test whole_faults -- --nocapture "$@" && flex_cluster --tests down
}

small_soak() {
    CLAIMS=${CLAIMS:-200} cargo test --workspace --test soak -- --nocapture
}

# Runs one stage with a control plane at a time. Beside others, Kubernetes' controllers would be so late that one history
# reaches into the next.
faults_stages() { # ARGUMENT OF THE KILLS AMID REAL PODS...
    budget=200 stage 'killed amid real pods' real_pods "$@"
    budget=350 stage 'killed at every write' cut_points
    budget=130 stage 'a small soak' small_soak
    budget=60 stage 'what only computes, its rest' joined 'what only computes'
}

# Prints the sum of the stages' lines, as one line.
faults_line() {
    awk '
        match($0, /^(histories|cut points|fuzz cases) [0-9]+:/) {
            what = $0; sub(/ [0-9]+:.*/, "", what)
            number = $0; sub(/^[^0-9]*/, "", number); sub(/:.*/, "", number)
            sum[what] += number
            rest = $0; sub(/^[^:]*: */, "", rest)
            parts = split(rest, part, /, */)
            for (i = 1; i <= parts; i++) { split(part[i], word, " "); bad[word[2]] += word[1] }
        }
        END {
            printf "histories %d, cut points %d, fuzz cases %d: %d leaked, %d duplicate, %d stuck\n",
                sum["histories"], sum["cut points"], sum["fuzz cases"], bad["leaked"], bad["duplicate"], bad["stuck"]
        }' "$faults_said"
}
