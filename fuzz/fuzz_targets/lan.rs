//! The libFuzzer binary of the target `lan`: frames, offloads and the switch.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::lan::target(data));
