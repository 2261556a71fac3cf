//! Environment, command line and file of `flex-pv create`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::flex_pv::check(data));
