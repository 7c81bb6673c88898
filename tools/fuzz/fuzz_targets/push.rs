//! The libFuzzer binary of the target `push`: push-push messages.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::push::target(data));
