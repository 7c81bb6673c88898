//! The libFuzzer binary of the target `tcpip_segment`: segments of a TCP connection.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::tcpip_segment::target(data));
