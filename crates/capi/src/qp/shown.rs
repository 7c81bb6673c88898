//! The state of a queue pair that its program reads, for threads that complete a connection.
//! It refers to the queue pair by number and not by address: the program may destroy the queue pair at the moment at which it is connected.

use std::sync::{Arc, Weak};

use super::Pair;
use crate::home::Home;

/// A queue pair that may have been destroyed.
pub(crate) struct Shown {
    home: Weak<Home>,
    number: u32,
}

impl Shown {
    /// Writes the state, if the queue pair still exists.
    pub(crate) fn reached(&self, state: u32) {
        if let Some(home) = self.home.upgrade() {
            home.reached(self.number, state);
        }
    }
}

impl Pair {
    /// A reference for updating the state that its program reads.
    pub(crate) fn shown(&self) -> Shown {
        Shown {
            home: Arc::downgrade(&self.home),
            number: self.transport.number(),
        }
    }
}
