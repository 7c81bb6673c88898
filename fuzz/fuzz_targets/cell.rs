//! libFuzzer's door to the target `cell`: cells of channels.
//! It promises to hand every input on unchanged; what is checked is known to the library only.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::cell::target(data));
