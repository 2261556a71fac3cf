//! Pod templates of admins.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::template::check(data));
