//! The libFuzzer binary of the target `qp_segments`: a queue pair over a carrier with sequence numbers, and a hostile peer.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::qp_segments::target(data));
