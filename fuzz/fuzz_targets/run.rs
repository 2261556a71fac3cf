//! Statuses of pods and Jobs, exit codes, termination messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run::check(data));
