//! The libFuzzer binary of the target `roce_qp`: a queue pair over RoCEv2 and a hostile peer.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::roce_qp::target(data));
