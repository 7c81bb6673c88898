//! The libFuzzer binary of the target `session`: a messaging session.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::session::target(data));
