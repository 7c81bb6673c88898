//! libFuzzer's door to the target `session`: a messaging session.
//! It promises to hand every input on unchanged; what is checked is known to the library only.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::session::target(data));
