//! The state of a queue pair as its program reads it, for whoever moves it in another thread.
//! It promises to touch nothing that is gone: the program may destroy the queue pair at the very moment at which it is connected.
//! It refuses to know the queue pair's address; its number leads there.

use std::sync::{Arc, Weak};

use super::Pair;
use crate::home::Home;

/// A queue pair that may be gone.
pub(crate) struct Shown {
    home: Weak<Home>,
    number: u32,
}

impl Shown {
    /// It has come to this state, if it is there still.
    pub(crate) fn reached(&self, state: u32) {
        if let Some(home) = self.home.upgrade() {
            home.reached(self.number, state);
        }
    }
}

impl Pair {
    /// What its program sees of its state.
    pub(crate) fn shown(&self) -> Shown {
        Shown {
            home: Arc::downgrade(&self.home),
            number: self.transport.number(),
        }
    }
}
