//! The libFuzzer binary of the target `fpdu`: FPDU layout.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::fpdu::target(data));
