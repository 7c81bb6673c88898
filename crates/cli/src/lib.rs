//! The library behind the `verbena` command: everything it does that is worth testing or fuzzing without a process.
//! It promises that no input file makes it panic, and that memory stays bounded whatever a capture holds.
//! It refuses to know terminals, arguments and exit codes; those are the binary's.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod bench;
pub mod decode;
pub mod demo;
pub mod events;
pub mod launch;
pub mod models;
