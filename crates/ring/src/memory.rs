//! The memory of a ring: its words as atomics, and copies from and to its records by address.
//! Another process may write all of it at any time, so that no reference to its bytes is made, only to single atomic words. Positions are
//! reduced to the ring's capacity here: no position and no length leads outside.

#[cfg_attr(loom, path = "memory/model.rs")]
#[cfg_attr(not(loom), path = "memory/raw.rs")]
mod arch;

use crate::consumer::Consumer;
use crate::layout::Layout;
use crate::producer::Producer;

pub use arch::{RingMemory, SharedWords};
// Not shuttle's: the words lie in memory that another process maps.
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

impl RingMemory {
    /// The side that writes. The memory is in its initial state, all zero.
    pub fn into_producer(self) -> Producer {
        Producer::new(self)
    }

    /// The side that reads.
    pub fn into_consumer(self) -> Consumer {
        Consumer::new(self)
    }
}

/// A ring in memory of this process: both sides, and its words as a peer would access them, for tests, models and the fuzz target.
pub fn on_heap(layout: Layout) -> (Producer, Consumer, SharedWords) {
    let words = SharedWords::new(layout);
    (
        words.memory().into_producer(),
        words.memory().into_consumer(),
        words,
    )
}
