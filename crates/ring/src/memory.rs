//! The memory of a ring: its words as atomics, and copies from and to its records by address.
//! Another process may write all of it at any time, so that no reference to its bytes is made, only to single atomic words. Positions are
//! reduced to the ring's capacity here: no position and no length leads outside.

#[cfg_attr(loom, path = "memory/model.rs")]
#[cfg_attr(not(loom), path = "memory/raw.rs")]
mod arch;

pub use arch::{RingMemory, SharedWords};
// Not shuttle's: the words lie in memory that another process maps.
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
