//! The libFuzzer binary of the target `startup`: MPA startup machines.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::startup::target(data));
