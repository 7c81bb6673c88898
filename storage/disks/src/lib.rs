//! Remote disks: iSCSI and iSER sessions with a target, and what is built on them. Everything above [`Blocks`] works at any queue depth in
//! one loop, without threads and without copying payload. The command line is a separate layer above this crate.
//!
//! Reading order: [`Blocks`] (a disk that takes requests) → [`sweep`] (whole ranges at depth) → [`bench`](mod@bench) (measurements) →
//! [`nbd`] (the disk as a network block device) → [`iscsi`] (queue pairs) → [`Address`] (addresses of disks).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

// The disk of the tests is shared with the integration tests, which refer to this crate by its name.
#[cfg(test)]
extern crate self as verbena_storage;

mod address;
pub mod bench;
mod blocks;
mod disk;
mod error;
mod inflight;
pub mod iscsi;
pub mod nbd;
pub mod session;
mod stop;
pub mod sweep;
mod unit;

#[cfg(test)]
#[path = "../tests/common/ram.rs"]
mod ram;

pub use address::{Address, AddressError, Credentials, Digest, Transport};
pub use blocks::{Blocks, BufferRef, Done, Extent, Geometry, Request};
pub use disk::{Buffer, Disk, Pending, RequestResult};
pub use error::{Error, Failure};
pub use session::Session;
pub use stop::Stop;
pub use unit::{Identity, Unit};
