//! The libFuzzer binary of the target `pair`: two connected streams.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::pair::target(data));
