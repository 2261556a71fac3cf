#!/usr/bin/env bash
# Checks that the end of a failed run names each failed test once, with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
expected='  attempt::a_run_ends
    repeat it: SEED=7 scripts/test-it.sh --test desk -- --include-ignored --exact attempt::a_run_ends
  the test program itself ended early
    repeat it: scripts/test-it.sh --test soak --
  seed 12 is broken: Leaked: a volume
    repeat it: target/debug/flex-sim --seed 12
    repeat it: RUST_BACKTRACE=1 target/debug/config fuzz/artifacts/config/crash-1'
found=$(awk -v programs=target/debug -f scripts/failed.awk <<'LOG'
     Running unittests src/lib.rs (target/debug/deps/flex_core-1)
test a::good ... ok
test result: ok. 1 passed; 0 failed
     Running tests/desk/main.rs (target/debug/deps/desk-2)
20 claims over 3 s, SEED=7
failures:

---- attempt::a_run_ends stdout ----
failures:
    what_the_program_said

failures:
    attempt::a_run_ends

test result: FAILED. 3 passed; 1 failed

error: test failed, to rerun pass `-p flex-tool --test desk`
     Running tests/soak/main.rs (target/debug/deps/soak-3)
error: test failed, to rerun pass `-p flex-provisioner --test soak`
seed 12 is broken: Leaked: a volume
replay it with: flex-sim --seed 12
replay: RUST_BACKTRACE=1 target/debug/config fuzz/artifacts/config/crash-1
LOG
)
diff -u --label expected --label found <(echo "$expected") <(echo "$found")
LOG=$(printf 'one\ntwo\n' | awk -f scripts/failed.awk)
[[ $LOG == *'no test: '*'    two' ]] || { echo "without a failed test, the last lines are missing: $LOG"; exit 1; }
