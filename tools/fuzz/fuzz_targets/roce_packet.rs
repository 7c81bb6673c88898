//! The libFuzzer binary of the target `roce_packet`: RoCEv2 packets.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::roce_packet::target(data));
