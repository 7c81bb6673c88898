//! The libFuzzer binary of the target `split`: hellos and the configuration service of the split driver.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::split::target(data));
