//! Provisioner ConfigMaps and StorageClasses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::config::check(data));
