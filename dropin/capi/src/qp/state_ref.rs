//! The state of a queue pair that its program reads, for threads that complete a connection.
//! It refers to the queue pair by number and not by address: the program may destroy the queue pair at the moment at which it is connected.

use std::sync::{Arc, Weak};

use super::Pair;
use crate::function::AdapterFunction;

/// A queue pair that may have been destroyed.
pub(crate) struct QpStateRef {
    function: Weak<AdapterFunction>,
    number: u32,
}

impl QpStateRef {
    /// Writes the state, if the queue pair still exists.
    pub(crate) fn publish_state(&self, state: u32) {
        if let Some(function) = self.function.upgrade() {
            function.publish_state(self.number, state);
        }
    }
}

impl Pair {
    /// A reference for updating the state that its program reads.
    pub(crate) fn state_ref(&self) -> QpStateRef {
        QpStateRef {
            function: Arc::downgrade(&self.function),
            number: self.transport.number(),
        }
    }
}
