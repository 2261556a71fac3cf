//! Claims, with arbitrary surroundings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::claim::check(data));
