//! The libFuzzer binary of the target `rsocket`: hellos and control messages of stream sockets.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::rsocket::target(data));
