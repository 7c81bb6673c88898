//! Concurrency primitives that the adapter's crates share: a queue between two threads without a lock, and a lock whose holder
//! does the work of threads that could not get it. All are built on [`primitives`], which are loom's with `cfg(loom)`, so that their
//! interleavings are checked by models (`cargo xtask loom`).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod combining_lock;
pub mod primitives;
#[allow(
    unsafe_code,
    reason = "slots that two threads hand to each other without a lock"
)]
pub mod ring;

pub use combining_lock::CombiningLock;
