#!/usr/bin/env bash
# Runs the targets of fuzz/ under libFuzzer, with bad input. If an input fails, the lines before the last say how to
# replay it, and where to keep it. The very last line is for programs: `fuzz cases N: 0 failed`.
#
#   fuzz.sh                        a small fixed number of cases for each target, the same cases every time
#   fuzz.sh --runs N [TARGET…]     N cases for each target
#   fuzz.sh --build                builds the targets, and runs nothing
#   fuzz.sh --minutes M [TARGET…]  M minutes in all, shared by the targets, with other cases every time
#
# FUZZ_CORPUS=DIR keeps from one run to the next the inputs that reached new code; it is not committed. The corpus of the
# repository has inputs that people wrote, and every input that has ever failed.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# The number of cases that takes each target about 8 s, with checks of overflow and without optimisation.
declare -A short=([config]=600 [flex_pv]=2500 [quantity]=100000 [run]=3000 [template]=1500)

runs='' minutes='' targets=() build_only=
while (($#)); do
    case $1 in
        --runs) runs=${2:?a number of cases} && shift ;;
        --minutes) minutes=${2:?a number of minutes} && shift ;;
        --build) build_only=yes ;;
        -*) fail "unknown argument $1" "usage: fuzz.sh [--build] [--runs N] [--minutes M] [TARGET…]" ;;
        *) [[ -n ${short[$1]:-} ]] || fail "there is no target $1" "there are: ${!short[*]}"
            targets+=("$1") ;;
    esac
    shift
done
((${#targets[@]})) || mapfile -t targets < <(printf '%s\n' "${!short[@]}" | sort)

all=("${!short[@]}")
# The tests' build and this build share the crates of others. Cargo builds ours once more, with counters.
command -v c++ >/dev/null || fail "a C++ compiler is missing: libFuzzer is built with it" "run scripts/setup.sh --test"
export RUSTC_WORKSPACE_WRAPPER=$root/fuzz/rustc-with-coverage.sh
# Cargo gets the whole workspace: for one package alone it would choose other features for the crates of others.
cargo build --locked --quiet --workspace --features fuzz/libfuzzer "${all[@]/#/--bin=}" >&2 ||
    fail "cargo could not build the fuzzers (its output is above)"
[[ -z $build_only ]] || exit 0
fuzzers=${CARGO_TARGET_DIR:-$root/target}/$CARGO_BUILD_TARGET/debug
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=$root/fuzz/artifacts

one() { # TARGET
    local target=$1 learnt=${FUZZ_CORPUS:-$work}/$1 limit=()
    mkdir -p "$learnt" "$found/$target"
    if [[ -n $minutes ]]; then
        limit=("-max_total_time=$((minutes * 120 / ${#targets[@]}))" "-runs=${runs:--1}")
    else
        limit=("-runs=${runs:-${short[$target]}}" -seed=1)
    fi
    RUST_BACKTRACE=0 "$fuzzers/$target" "${limit[@]}" -len_control=0 -max_len=500 -timeout=60 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$found/$target/" "$learnt" "fuzz/corpus/$target" >"$work/$target.log" 2>&1
}

# Two targets run at a time.
declare -A running=()
failed=() cases=0
reap() {
    local pid target status=0
    wait -n -p pid "${!running[@]}" || status=$?
    target=${running[$pid]}
    unset "running[$pid]"
    local log=$work/$target.log done_
    done_=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    cases=$((cases + ${done_:-0}))
    say "$target: ${done_:-0} cases, $(sed -n 's/.*INITED cov: \([0-9]*\).*/coverage \1/p' "$log" | head -n 1) to $(
        sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)"
    if ((status != 0)); then
        failed+=("$target")
        grep -v '^ *$' "$log" | tail -n 30 >&2
    fi
}
for target in "${targets[@]}"; do
    ((${#running[@]} < 2)) || reap
    one "$target" &
    running[$!]=$target
done
while ((${#running[@]})); do reap; done

for target in "${failed[@]}"; do
    for input in "$found/$target"/*; do
        [[ -e $input ]] || continue
        printf 'replay: RUST_BACKTRACE=1 %s %s\n' "${fuzzers#"$root/"}/$target" "${input#"$root/"}"
        printf 'when it is mended: copy it to fuzz/corpus/%s/ under a name that says what it was\n' "$target"
    done
done
printf 'fuzz cases %d: %d failed\n' "$cases" "${#failed[@]}"
((${#failed[@]} == 0))
