//! The libFuzzer binary of the target `iscsi`: iSCSI headers, text and iSER headers.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::iscsi::target(data));
