//! libFuzzer's door to the target `login`: the login of an iSCSI initiator.
//! It promises to hand every input on unchanged; what is checked is known to the library only.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::login::target(data));
