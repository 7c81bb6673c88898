//! Concurrency primitives that the adapter's crates share: a queue between two threads without a lock, and a lock whose holder
//! does the work of threads that could not get it. Both are built on [`primitives`], which are loom's with `cfg(loom)`, so that their
//! interleavings are checked by models (`cargo xtask loom`). All other code uses [`atomic`], [`locks`] and [`thread`]: with `cfg(shuttle)`
//! they are shuttle's, so that a seed decides the order of all threads (`cargo xtask schedules`).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod atomic;
pub mod combining_lock;
pub mod locks;
pub mod primitives;
#[allow(
    unsafe_code,
    reason = "slots that two threads hand to each other without a lock"
)]
pub mod ring;
pub mod thread;

pub use combining_lock::CombiningLock;
