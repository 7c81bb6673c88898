//! A completion queue: entries in, entries out, and one notification per arming (N7).
//! It promises order, that an entry is visible before its notification, and that overflow is noticed and told once.
//! It refuses to know queue pairs; whoever completes work holds the queue and pushes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::event::{Event, Outbox};
use crate::wc::Wc;

/// Largest completion queue.
pub const MAX_ENTRIES: usize = 1 << 22;

/// What a queue waits for before it notifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next solicited completion or failure.
    Solicited,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    number: u32,
    /// Entries that wait: lets a poller see an empty queue without the lock.
    waiting: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: VecDeque<Wc>,
    capacity: usize,
    armed: Option<Arm>,
    overflowed: bool,
}

/// A completion queue that cannot be made or changed so. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// No queue has this size.
    #[error("a completion queue holds 1 to {MAX_ENTRIES} entries, not {0}")]
    Size(usize),
    /// More entries wait than would fit.
    #[error("{waiting} entries wait, {wanted} would fit")]
    Waiting {
        /// Entries that wait.
        waiting: usize,
        /// The size asked for.
        wanted: usize,
    },
}

impl Cq {
    /// An empty queue for `capacity` entries.
    pub fn new(number: u32, capacity: usize) -> Result<Cq, CqError> {
        check_size(capacity)?;
        Ok(Cq {
            number,
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                entries: VecDeque::new(),
                capacity,
                armed: None,
                overflowed: false,
            }),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Entries that wait.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// No entry waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that fit.
    pub fn capacity(&self) -> usize {
        self.inner.lock().capacity
    }

    /// Entries were lost: the queue is of no further use.
    pub fn has_overflowed(&self) -> bool {
        self.inner.lock().overflowed
    }

    /// Takes the oldest entries, as many as `out` holds; returns how many.
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut inner = self.inner.lock();
        let count = out.len().min(inner.entries.len());
        for (slot, wc) in out.iter_mut().zip(inner.entries.drain(..count)) {
            *slot = wc;
        }
        self.waiting.store(inner.entries.len(), Ordering::Release);
        count
    }

    /// Asks for one notification. A request for the next completion outweighs one for a solicited completion.
    ///
    /// Entries that wait already do not notify: poll once more after arming.
    pub fn arm(&self, arm: Arm) {
        let mut inner = self.inner.lock();
        if inner.armed != Some(Arm::Next) {
            inner.armed = Some(arm);
        }
    }

    /// Adds an entry; false if the queue has no room and the entry is lost.
    pub fn push(&self, wc: Wc, outbox: &mut Outbox) -> bool {
        let mut inner = self.inner.lock();
        if inner.entries.len() >= inner.capacity {
            // Told once; the queue pairs that complete here must fail.
            if !core::mem::replace(&mut inner.overflowed, true) {
                outbox.push(Event::CqOverflow { cq: self.number });
            }
            return false;
        }
        inner.entries.push_back(wc);
        self.waiting.store(inner.entries.len(), Ordering::Release);
        let fires = match inner.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wc.is_urgent(),
            None => false,
        };
        if fires {
            inner.armed = None;
            outbox.push(Event::Completion { cq: self.number });
        }
        true
    }

    /// Changes the size; entries that wait stay, in order.
    pub fn resize(&self, capacity: usize) -> Result<(), CqError> {
        check_size(capacity)?;
        let mut inner = self.inner.lock();
        let waiting = inner.entries.len();
        if waiting > capacity {
            return Err(CqError::Waiting {
                waiting,
                wanted: capacity,
            });
        }
        inner.capacity = capacity;
        Ok(())
    }

    /// Removes the entries of a queue pair that is being destroyed.
    pub fn forget(&self, qpn: u32) {
        if self.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        inner.entries.retain(|wc| wc.qpn != qpn);
        self.waiting.store(inner.entries.len(), Ordering::Release);
    }
}

fn check_size(capacity: usize) -> Result<(), CqError> {
    if (1..=MAX_ENTRIES).contains(&capacity) {
        Ok(())
    } else {
        Err(CqError::Size(capacity))
    }
}

#[cfg(test)]
mod tests;
