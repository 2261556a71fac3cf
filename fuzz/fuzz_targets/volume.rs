//! PersistentVolumes that images create.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::volume::check(data));
