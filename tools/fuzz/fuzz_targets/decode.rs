//! The libFuzzer binary of the target `decode`: capture files.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::decode::target(data));
