//! libFuzzer's door to the target `iscsi`: headers of iSCSI, text and headers of iSER.
//! It promises to hand every input on unchanged; what is checked is known to the library only.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::iscsi::target(data));
