//! The libFuzzer binary of the target `iscsi_qp`: an iSCSI queue pair with a hostile target.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::iscsi_qp::target(data));
