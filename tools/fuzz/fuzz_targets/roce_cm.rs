//! The libFuzzer binary of the target `roce_cm`: messages of the connection manager.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::roce_cm::target(data));
