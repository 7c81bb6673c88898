//! The libFuzzer binary of the target `ring`: a ring in memory that a hostile process writes as well.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::ring::target(data));
