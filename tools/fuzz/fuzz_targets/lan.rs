//! The libFuzzer binary of the target `lan`: frames, offloads and the switch.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::lan::target(data));
