//! The lock of a connection's state, and completions that arrive while it is held. Completions for a tail are handled by the thread that
//! is notified of them or by the holder of the lock, after it has released the lock. A thread of the adapter never waits for the lock,
//! which it may hold itself.

use core::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, fence};

use parking_lot::MutexGuard;

use super::{Flow, Link};

/// Limit on turns in a row for a tail: more than a conforming peer can cause.
const MAX_TURNS: usize = 16;

/// The locked state.
pub(super) struct FlowGuard<'a> {
    // Dropped in this order: the lock is released first.
    flow: MutexGuard<'a, Flow>,
    _after_unlock: AfterUnlock<'a>,
}

/// Handles completions that arrived while the lock was held.
struct AfterUnlock<'a>(&'a Link);

impl Link {
    /// Locks the state.
    pub(super) fn lock_flow(&self) -> FlowGuard<'_> {
        FlowGuard {
            flow: self.flow.lock(),
            _after_unlock: AfterUnlock(self),
        }
    }

    /// Called by the adapter at a completion, possibly by a thread that holds the lock, within one of its calls.
    pub(super) fn on_completion(&self) {
        if self.has_tail.load(Ordering::SeqCst) {
            self.tail_due.store(true, Ordering::SeqCst);
            self.service_tail();
        }
    }

    /// Either this thread gets the lock, or its holder sees `tail_due` afterwards: each stores first and then loads.
    fn service_tail(&self) {
        for _ in 0..MAX_TURNS {
            fence(Ordering::SeqCst);
            if !self.tail_due.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut flow) = self.flow.try_lock() else {
                return;
            };
            self.tail_due.store(false, Ordering::SeqCst);
            self.arm_for_tail(&mut flow);
        }
    }
}

impl Drop for AfterUnlock<'_> {
    fn drop(&mut self) {
        self.0.service_tail();
    }
}

impl Deref for FlowGuard<'_> {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl DerefMut for FlowGuard<'_> {
    fn deref_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }
}
