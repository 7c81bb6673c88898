//! A completion queue: entries in, entries out, and one notification per arming (N7).
//! It promises order, that an entry is visible before its notification, and that overflow is noticed and told once.
//! It refuses to know queue pairs; whoever completes work holds the queue and pushes.
//!
//! Two short locks, one at each end, with a `ring` between them: a thread that polls never makes a
//! connection wait. Arming belongs to the producers' end, so that it falls before a push, which then notifies, or after
//! it, and then the next poll finds the entry; no fence is needed for that. Modelled with loom in `cq/tests.rs`.

use std::collections::VecDeque;

use crate::event::{Event, Outbox};
use crate::ring::{Consumer, Producer, ring};
use crate::sync::{AtomicUsize, Mutex, Ordering};
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
    input: Input,
    output: Output,
}

/// What producers write, on a cache line of its own.
///
/// The count is there twice so that nobody who stores it must load it: loom forgets another thread's load of an atomic as
/// soon as the storing thread loads it, too, and would try hardly any interleavings.
#[derive(Debug)]
#[repr(align(64))]
struct Input {
    /// Entries pushed so far, for those without the lock; stored after the entry is in the ring.
    pushed: AtomicUsize,
    end: Mutex<InputEnd>,
}

#[derive(Debug)]
struct InputEnd {
    ring: Producer<Wc>,
    /// Entries pushed so far.
    pushed: usize,
    /// Entries that had left when we last needed to know: spares most pushes a look at the pollers' cache line.
    taken: usize,
    capacity: usize,
    armed: Option<Arm>,
    overflowed: bool,
    /// The shared send queue that its entries are for, instead of a consumer (V6).
    feeds: Option<u32>,
}

impl InputEnd {
    /// Entries that wait, as far as we know: never too few.
    fn waiting(&self) -> usize {
        self.pushed.wrapping_sub(self.taken)
    }
}

/// What pollers write, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Output {
    /// Entries that have left so far, for those without the lock; stored after they have left the ring.
    taken: AtomicUsize,
    end: Mutex<OutputEnd>,
}

#[derive(Debug)]
struct OutputEnd {
    ring: Consumer<Wc>,
    /// Entries that have left so far, polled or forgotten.
    taken: usize,
    /// Entries that [`Cq::forget`] took out of the ring and kept: older than everything there.
    kept: VecDeque<Wc>,
}

impl OutputEnd {
    fn pop(&mut self) -> Option<Wc> {
        if self.kept.is_empty() {
            return self.ring.pop();
        }
        let wc = self.kept.pop_front();
        if self.kept.is_empty() {
            // Destroying is rare; its memory need not stay.
            self.kept = VecDeque::new();
        }
        wc
    }
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
        Cq::make(number, capacity, None)
    }

    /// A queue that no consumer sees: when it is armed, an entry wakes this shared send queue (V6).
    pub(crate) fn feeding(ssq: u32, capacity: usize) -> Result<Cq, CqError> {
        Cq::make(0, capacity, Some(ssq))
    }

    fn make(number: u32, capacity: usize, feeds: Option<u32>) -> Result<Cq, CqError> {
        check_size(capacity)?;
        let (producer, consumer) = ring();
        let input = InputEnd {
            ring: producer,
            pushed: 0,
            taken: 0,
            capacity,
            armed: None,
            overflowed: false,
            feeds,
        };
        let output = OutputEnd {
            ring: consumer,
            taken: 0,
            kept: VecDeque::new(),
        };
        Ok(Cq {
            number,
            input: Input {
                pushed: AtomicUsize::new(0),
                end: Mutex::new(input),
            },
            output: Output {
                taken: AtomicUsize::new(0),
                end: Mutex::new(output),
            },
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Entries that wait. While others poll it may be too many, never too few.
    pub fn len(&self) -> usize {
        // In this order: whatever has left was pushed before, so the second is never the smaller one.
        let taken = self.output.taken.load(Ordering::Acquire);
        let pushed = self.input.pushed.load(Ordering::Acquire);
        pushed.wrapping_sub(taken)
    }

    /// No entry waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that fit.
    pub fn capacity(&self) -> usize {
        self.input.end.lock().capacity
    }

    /// Its entries are for a shared send queue (V6).
    pub(crate) fn is_feeding(&self) -> bool {
        self.input.end.lock().feeds.is_some()
    }

    /// Entries were lost: the queue is of no further use.
    pub fn has_overflowed(&self) -> bool {
        self.input.end.lock().overflowed
    }

    /// Takes the oldest entries, as many as `out` holds; returns how many.
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut end = self.output.end.lock();
        let waiting = self.waiting(&end);
        let mut count = 0;
        for slot in out.iter_mut().take(waiting) {
            let Some(wc) = end.pop() else { break };
            *slot = wc;
            count += 1;
        }
        self.left(&mut end, count);
        count
    }

    /// Asks for one notification. A request for the next completion outweighs one for a solicited completion.
    ///
    /// Entries that wait already do not notify: poll once more after arming.
    pub fn arm(&self, arm: Arm) {
        let mut end = self.input.end.lock();
        if end.armed != Some(Arm::Next) {
            end.armed = Some(arm);
        }
    }

    /// Takes the asking back: whoever serves the queue itself looks for entries, and need not be told of what it has pushed.
    pub fn disarm(&self) {
        self.input.end.lock().armed = None;
    }

    /// Adds an entry; false if the queue has no room and the entry is lost.
    pub fn push(&self, wc: Wc, outbox: &mut Outbox) -> bool {
        self.enter(wc, false, outbox)
    }

    /// The same, and notifies of it, armed or not: its request asked for that (N7).
    pub fn push_and_tell(&self, wc: Wc, outbox: &mut Outbox) -> bool {
        self.enter(wc, true, outbox)
    }

    fn enter(&self, wc: Wc, tell: bool, outbox: &mut Outbox) -> bool {
        let mut end = self.input.end.lock();
        if end.waiting() >= end.capacity {
            end.taken = self.output.taken.load(Ordering::Acquire);
        }
        if end.waiting() >= end.capacity {
            // Told once; the queue pairs that complete here must fail.
            if !core::mem::replace(&mut end.overflowed, true) {
                outbox.push(Event::CqOverflow { cq: self.number });
            }
            return false;
        }
        end.ring.push(wc);
        end.pushed = end.pushed.wrapping_add(1);
        // Release: who sees the count finds the entry.
        self.input.pushed.store(end.pushed, Ordering::Release);
        let fires = match end.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wc.is_urgent(),
            None => false,
        };
        if fires || tell {
            // One that asked for itself takes the arming along: its consumer comes anyway.
            end.armed = None;
            let (cq, reason) = (self.number, wc.reason());
            match end.feeds {
                None => outbox.push(Event::Completion { cq, reason }),
                Some(ssq) => outbox.wake_sends(ssq),
            }
        }
        true
    }

    /// Changes the size; entries that wait stay, in order.
    pub fn resize(&self, capacity: usize) -> Result<(), CqError> {
        check_size(capacity)?;
        // Nothing comes while we hold this lock, so no more can wait than we find.
        let mut end = self.input.end.lock();
        end.taken = self.output.taken.load(Ordering::Acquire);
        let waiting = end.waiting();
        if waiting > capacity {
            return Err(CqError::Waiting {
                waiting,
                wanted: capacity,
            });
        }
        end.capacity = capacity;
        Ok(())
    }

    /// Removes the entries of a queue pair that is being destroyed or reset; those of others keep their order.
    pub fn forget(&self, qpn: u32) {
        drop(self.take_of(qpn));
    }

    /// Takes the entries of a queue pair that leaves, in order.
    pub(crate) fn take_of(&self, qpn: u32) -> Vec<Wc> {
        let mut taken = Vec::new();
        if self.is_empty() {
            return taken;
        }
        let mut end = self.output.end.lock();
        let mut kept = VecDeque::new();
        for _ in 0..self.waiting(&end) {
            match end.pop() {
                Some(wc) if wc.qpn == qpn => taken.push(wc),
                Some(wc) => kept.push_back(wc),
                None => break,
            }
        }
        end.kept = kept;
        self.left(&mut end, taken.len());
        taken
    }

    /// Entries that wait and are counted: one that is in the ring already must not leave before it is.
    fn waiting(&self, end: &OutputEnd) -> usize {
        let pushed = self.input.pushed.load(Ordering::Acquire);
        pushed.wrapping_sub(end.taken)
    }

    /// So many entries more have left.
    fn left(&self, end: &mut OutputEnd, count: usize) {
        end.taken = end.taken.wrapping_add(count);
        // Release: whoever sees the count sees as many pushes at least.
        self.output.taken.store(end.taken, Ordering::Release);
    }
}

pub(crate) fn check_size(capacity: usize) -> Result<(), CqError> {
    if (1..=MAX_ENTRIES).contains(&capacity) {
        Ok(())
    } else {
        Err(CqError::Size(capacity))
    }
}

#[cfg(test)]
mod tests;
