//! The libFuzzer binary of the target `rdmap`: fixed RDMAP headers.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::rdmap::target(data));
