//! The libFuzzer binary of the target `scsi`: data that SCSI logical units return.
//! What is checked is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbena_fuzz::scsi::target(data));
