//! Disks of Debian's tgtd through `verbena iscsi` and the storage crate, and the target itself through programs of libiscsi: over TCP, and
//! over iSER with our libraries under both. Each test has its own target; programs that are missing on a machine are reported, and are a
//! failure in CI.

mod commands;
mod depth;
mod disks;
mod faults;
mod interop;
mod iser;
mod login;
mod target;
mod tcp;
mod tool;
