//! libFuzzer's door to the target `iscsi_qp`: an iSCSI queue pair under a hostile target.
//! It promises to hand every input on unchanged; what is checked is known to the library only.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::iscsi_qp::target(data));
