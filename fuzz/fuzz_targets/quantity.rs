//! Sizes, against exact arithmetic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::quantity::check(data));
