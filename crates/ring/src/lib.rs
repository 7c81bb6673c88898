//! A ring of records between one producer and one consumer in different processes, in memory that both map and neither trusts.
//! It carries one direction of a byte stream: a record holds bytes of it, or says where in the producer's process they are.
//!
//! **No index of the producer is shared.** A record is published by its header word, which is stored last (release); the word behind the
//! last record is zero. So the consumer polls the line that will hold the next record, and a short message costs the transfer of that
//! line only. Of the consumer the producer sees how far it has read.
//!
//! **Trust.** The other process may write every word at any time. Each word is loaded once, and its copy is checked; what no honest peer
//! writes is a [`Violation`], after which the handle moves no bytes. A handle never reads or writes outside the ring, whatever is in it.
//! What a peer can achieve is that its own stream has wrong bytes, that it is not woken, or that the other side is woken without need.
//!
//! **Sleep.** A side that is going to sleep announces it in a word of its own, and looks at the ring once more; the other side looks at
//! that word after each change, and takes the announcement back, so that a sleeper is woken once. How it is woken is the caller's
//! business: nothing here makes a system call.
//!
//! Reading order: [`layout`] → [`record`] → [`memory`] → [`producer`] → [`consumer`].

#![deny(unsafe_code)]

pub mod consumer;
pub mod error;
pub mod layout;
#[allow(unsafe_code, reason = "memory that another process maps as well")]
pub mod memory;
pub mod producer;
pub mod record;

pub use consumer::{Consumer, Read};
pub use error::{RingError, Violation};
pub use layout::Layout;
pub use memory::{RingMemory, SharedWords};
pub use producer::Producer;

/// A ring in memory of this process: both sides, and its words as a peer would access them, for tests, models and the fuzz target.
pub fn on_heap(layout: Layout) -> (Producer, Consumer, SharedWords) {
    let words = SharedWords::new(layout);
    (
        words.memory().into_producer(),
        words.memory().into_consumer(),
        words,
    )
}

#[cfg(test)]
mod tests;
