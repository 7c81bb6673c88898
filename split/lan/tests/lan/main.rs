//! Kernel interfaces, bridges and a small I/O unit, in network namespaces.
//! Every test has its own namespaces, so that all can run in one program in parallel.

#[path = "../common/mod.rs"]
mod common;

mod bridge;
mod fanout;
mod interfaces;
mod unit;
