# shellcheck shell=bash
# The proof that nothing leaks and nothing sticks, in stages. Source it after lib.sh; `need_root` and the set-up are the caller's.
#
# Each stage ends with a line of the form `WHAT N: …`, which `faults_line` sums up. Budgets are in seconds on 2 cores;
# more than that is told, not failed. The long forms:
#
#   target/…/quick/flex-sim --minutes 30         histories of the simulation; --seed N replays one
#   scripts/fuzz.sh --minutes 30 [TARGET…]         bad input
#   make test-faults                               before and after every write in every scenario; otherwise events are
#                                                  cut off after, what is added to a claim's life is so at all others, and
#                                                  one state of the API is cut once
#   make soak                                      10,000 claims

: "${programs:?lib.sh is to be sourced before}"
faults_said=$(mktemp)
# The tests take the program as it is shipped: it is there sooner, and takes less of the processors. That no number overflows is
# for the tests of the library and the fuzzers, which check each.
export programs faults_said FLEX_PROVISIONER=$programs/flex-provisioner

# Runs a program and keeps its line for the sum.
said() { # COMMAND...
    "$@" 2>&1 | tee -a "$faults_said"
    return "${PIPESTATUS[0]}"
}

# What only computes, and whose outcome does not depend on its pace, gets what other stages leave over while they wait.
# (Put before all others, on one of two processors, it left the tests too little: they had taken 8 minutes, and were not
# done after 14.)
begin_computing() {
    beside 'what only computes' computing
}

computing() {
    renice -n 19 -p "$$" >/dev/null
    # Where the kernel does not let us, it only takes more from the others.
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

build_faults() {
    cargo test --workspace --no-run --test faults --test whole_faults --test soak &&
        scripts/fuzz.sh --build
}

cut_points() {
    said cargo test --workspace --test faults -- --nocapture
}

# Nobody needs the cluster with nodes after it, and it does not idle for nothing.
real_pods() {
    cargo test --workspace --test whole_faults -- --nocapture && flex_cluster --tests down
}

small_soak() {
    CLAIMS=${CLAIMS:-200} cargo test --workspace --test soak -- --nocapture
}

# Each alone with a control plane: behind others its own controllers are so late that one history reaches into the next.
faults_stages() {
    budget=420 stage 'killed amid real pods' real_pods
    budget=480 stage 'killed at every write' cut_points
    budget=80 stage 'a small soak' small_soak
    budget=180 stage 'what only computes, its rest' joined 'what only computes'
}

# The sum of what the stages said, in one line.
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
