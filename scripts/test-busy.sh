#!/usr/bin/env bash
# Repeats tests while other processes keep all processors busy. A test that waits for the right thing passes each time.
#
#   test-busy.sh [CARGO'S FLAG… -- ARGUMENT…]     the tests of the API server and the cluster, or those of test-it.sh's form
#   TIMES=20     how often each test runs
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"
TIMES=${TIMES:-20}
log=$(mktemp)
busy=()
end() {
    ((${#busy[@]} == 0)) || kill "${busy[@]}"
    rm -f "$log"
}
trap end EXIT
for ((i = $(nproc); i > 0; i--)); do
    sha256sum /dev/zero &
    busy+=($!)
done

failures=0
for ((round = 1; round <= TIMES; round++)); do
    if scripts/test-it.sh "$@" >"$log" 2>&1; then continue; fi
    failures=$((failures + 1))
    kept=$root/build/logs/busy-$round.log
    mkdir -p "${kept%/*}" && cp "$log" "$kept"
    printf 'round %d of %d failed; its output: %s\n' "$round" "$TIMES" "$kept"
    awk -v programs="${programs#"$root/"}" -f scripts/failed.awk "$log"
done
printf 'rounds %d: %d failed\n' "$TIMES" "$failures"
((failures == 0))
