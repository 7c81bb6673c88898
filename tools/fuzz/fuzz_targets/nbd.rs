//! The libFuzzer binary of the target `nbd`: clients of an exported disk.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::nbd::target(data));
