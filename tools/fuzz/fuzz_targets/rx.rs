//! The libFuzzer binary of the target `rx`: the receive side of a stream.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::rx::target(data));
