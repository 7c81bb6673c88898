//! The libFuzzer binary of the target `login`: the login of an iSCSI initiator.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::login::target(data));
