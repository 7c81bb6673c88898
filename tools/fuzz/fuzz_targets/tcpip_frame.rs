//! The libFuzzer binary of the target `tcpip_frame`: frames for a TCP/IP stack.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::tcpip_frame::target(data));
