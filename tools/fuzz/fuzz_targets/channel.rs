//! The libFuzzer binary of the target `channel`: a port fed by a hostile peer.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::channel::target(data));
