//! The flow of a connection, held by one thread at a time, and what the adapter's threads leave to whoever holds it.
//! It promises that completions that came for a tail are seen to: by who was told of them, or by who held the flow then.
//! It refuses to make one of the adapter's threads wait for a program's, which may be the very same.

use core::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, fence};

use parking_lot::MutexGuard;

use super::{Flow, Link};

/// Turns at a tail that are taken at once: more than a peer that keeps to the rules can have left completions for.
const TURNS: usize = 16;

/// The flow, held.
pub(super) struct Held<'a> {
    // In this order: it is let go first.
    flow: MutexGuard<'a, Flow>,
    _after: After<'a>,
}

/// Sees to what was left to whoever held the flow.
struct After<'a>(&'a Link);

impl Link {
    /// Takes hold of the flow.
    pub(super) fn hold(&self) -> Held<'_> {
        Held {
            flow: self.flow.lock(),
            _after: After(self),
        }
    }

    /// The adapter has told of a completion. This may be a thread that holds the flow, deep inside one of its calls.
    pub(super) fn notified(&self) {
        if self.has_tail.load(Ordering::SeqCst) {
            self.due.store(true, Ordering::SeqCst);
            self.see_to_tail();
        }
    }

    /// Either we get hold of the flow, or whoever has it sees `due` afterwards: each writes first and then looks.
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
