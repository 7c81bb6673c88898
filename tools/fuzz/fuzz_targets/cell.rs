//! The libFuzzer binary of the target `cell`: cells of channels.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::cell::target(data));
