//! The libFuzzer binary of the target `handover`: images of queue pairs.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::handover::target(data));
