#!/bin/sh
# A RUSTC_WORKSPACE_WRAPPER. Only the crates of this workspace get the counters that guide libFuzzer. So cargo uses the
# crates of others as it built them for everything else. The compiler's pass needs no nightly. The fuzzers are linked with
# the C library at run time, where libFuzzer looks up functions.
for word do
    shift
    case $word in target-feature=+crt-static) word=target-feature=-crt-static ;; esac
    set -- "$@" "$word"
done
exec "$@" --cfg fuzzing \
    -C passes=sancov-module \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares
