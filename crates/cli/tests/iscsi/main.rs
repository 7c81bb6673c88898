//! Disks of Debian's tgtd through `verbena iscsi` and the storage crate, beside libiscsi's and libnbd's programs.
//! Each test has a target of its own; what is missing on a machine is said, and in CI it fails.

mod commands;
mod depth;
mod disks;
mod faults;
mod interop;
mod login;
mod target;
mod tool;
