//! The library of the `verbena` command: what can be tested or fuzzed without a process. No input file makes it panic, and memory stays
//! bounded whatever a capture contains. Arguments and exit codes are the binary's.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod bench;
pub mod check;
pub mod decode;
pub mod demo;
pub mod events;
pub mod faults;
pub mod http;
pub mod lab;
pub mod launch;
pub mod metrics;
pub mod models;
pub mod objects;
pub mod pcap;
pub mod plot;
pub mod top;
pub mod trace;
pub mod web;
pub mod why;
