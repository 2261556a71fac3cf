//! Statuses of pods and Jobs, exit codes, last words.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run::check(data));
