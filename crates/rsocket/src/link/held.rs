//! The lock of a connection's state, and completions that arrive while it is held. Completions for a tail are handled by the thread that
//! is notified of them or by the holder of the lock, after it has released the lock. A thread of the adapter never waits for the lock,
//! which it may hold itself.

use core::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, fence};

use parking_lot::MutexGuard;

use super::{Flow, Link};

/// Limit on turns in a row for a tail: more than a conforming peer can cause.
const TURNS: usize = 16;

/// The locked state.
pub(super) struct Held<'a> {
    // Dropped in this order: the lock is released first.
    flow: MutexGuard<'a, Flow>,
    _after: After<'a>,
}

/// Handles completions that arrived while the lock was held.
struct After<'a>(&'a Link);

impl Link {
    /// Locks the state.
    pub(super) fn hold(&self) -> Held<'_> {
        Held {
            flow: self.flow.lock(),
            _after: After(self),
        }
    }

    /// Called by the adapter at a completion, possibly by a thread that holds the lock, within one of its calls.
    pub(super) fn notified(&self) {
        if self.has_tail.load(Ordering::SeqCst) {
            self.due.store(true, Ordering::SeqCst);
            self.see_to_tail();
        }
    }

    /// Either this thread gets the lock, or its holder sees `due` afterwards: each stores first and then loads.
    fn see_to_tail(&self) {
        for _ in 0..TURNS {
            fence(Ordering::SeqCst);
            if !self.due.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut flow) = self.flow.try_lock() else {
                return;
            };
            self.due.store(false, Ordering::SeqCst);
            self.expect(&mut flow);
        }
    }
}

impl Drop for After<'_> {
    fn drop(&mut self) {
        self.0.see_to_tail();
    }
}

impl Deref for Held<'_> {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }
}
