# shellcheck shell=bash
# The proof that nothing leaks and nothing sticks, in stages. Source it after lib.sh; `need_root` and the set-up are the caller's.
#
# Each stage ends with a line of the form `WHAT N: …`, which `faults_line` sums up. Budgets are in seconds on 2 cores;
# more than that is told, not failed. The long forms:
#
#   target/…/release/flex-sim --minutes 30         histories of the simulation, which is not a stage yet; --seed N replays one
#   scripts/fuzz.sh --minutes 30 [TARGET…]         bad input
#   make soak                                      10,000 claims

: "${release:?lib.sh is to be sourced before}"
faults_said=$(mktemp)

# Runs a program and keeps its line for the sum.
said() { # COMMAND...
    "$@" 2>&1 | tee -a "$faults_said"
    return "${PIPESTATUS[0]}"
}

cut_points() {
    said cargo test --package flex-provisioner --test faults -- --nocapture
}

real_pods() {
    cargo test --package flex-provisioner --test whole_faults -- --nocapture
}

bad_input() {
    said scripts/fuzz.sh
}

small_soak() {
    CLAIMS=${CLAIMS:-200} cargo test --package flex-provisioner --test soak -- --nocapture
}

# What every run of the tests has of it.
short_faults_stages() {
    budget=240 stage 'bad input' bad_input
}

faults_stages() {
    short_faults_stages
    budget=720 stage 'killed at every write' cut_points
    budget=480 stage 'killed amid real pods' real_pods
    budget=240 stage 'a small soak' small_soak
}

# The sum of what the stages said, in one line.
faults_line() {
    awk '
        match($0, /^(cut points|fuzz cases) [0-9]+:/) {
            what = $0; sub(/ [0-9]+:.*/, "", what)
            number = $0; sub(/^[^0-9]*/, "", number); sub(/:.*/, "", number)
            sum[what] += number
            rest = $0; sub(/^[^:]*: */, "", rest)
            parts = split(rest, part, /, */)
            for (i = 1; i <= parts; i++) { split(part[i], word, " "); bad[word[2]] += word[1] }
        }
        END {
            printf "cut points %d, fuzz cases %d: %d leaked, %d duplicate, %d stuck\n",
                sum["cut points"], sum["fuzz cases"], bad["leaked"], bad["duplicate"], bad["stuck"]
        }' "$faults_said"
}
