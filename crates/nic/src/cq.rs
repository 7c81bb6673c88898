//! A completion queue: entries in, entries out, and one notification per arming (N7).
//! Entries keep their order, an entry is visible before its notification, and overflow is detected and raised once. The queue
//! knows no queue pairs: the code that completes work pushes into it.
//!
//! There are two short locks, one for producers and one for consumers, with a `ring` between them: a polling thread never makes a
//! connection wait. Arming takes the producers' lock, so it happens either before a push, which then notifies, or after
//! it, and then the next poll finds the entry; no fence is needed. Modelled with loom in `cq/tests.rs`.
//!
//! Timestamps are in a ring of their own beside that of the entries, and a queue with options has a limit of 0 entries before the
//! way that looks at the options is taken: a queue without options has no further branch for them.

use std::collections::VecDeque;

use verbena_events::event::{Event, Outbox};
use verbena_sync::primitives::{AtomicUsize, Mutex, Ordering};
use verbena_sync::ring::{Consumer, Producer, ring};

use crate::trace::{self, ObserverCell, TraceEvent};
use crate::wc::Wc;

/// Largest completion queue.
pub const MAX_ENTRIES: usize = 1 << 22;

/// Which completion causes the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next solicited completion or failure.
    Solicited,
}

/// When a completion was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamp {
    /// Nanoseconds of a clock that is not set (`CLOCK_MONOTONIC`).
    pub monotonic: u64,
    /// Nanoseconds since 1970 (`CLOCK_REALTIME`).
    pub realtime: u64,
}

/// Options of a completion queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct CqOptions {
    /// The clock that is read when an entry is written; without one, entries have no timestamp.
    pub clock: Option<fn() -> Timestamp>,
    /// An entry for which the queue has no room replaces the oldest one, instead of failing the queue pairs that complete here.
    pub ignore_overrun: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    number: u32,
    observer: ObserverCell,
    input: Input,
    output: Output,
}

/// What producers write, on a cache line of its own.
///
/// The count is kept twice so that a thread that stores the atomic need not load it: loom forgets another thread's load of an
/// atomic as soon as the storing thread loads it, too, and would try hardly any interleavings.
#[derive(Debug)]
#[repr(align(64))]
struct Input {
    /// Entries pushed so far, for readers without the lock; stored after the entry is in the ring.
    pushed: AtomicUsize,
    end: Mutex<InputEnd>,
}

#[derive(Debug)]
struct InputEnd {
    ring: Producer<Wc>,
    /// Entries pushed so far.
    pushed: usize,
    /// Entries taken out, as last read from the output side: saves most pushes an access to the pollers' cache line.
    taken: usize,
    capacity: usize,
    /// Entries that may wait before the options are looked at: the capacity, or 0 if there are options.
    plain_limit: usize,
    ignore_overrun: bool,
    stamps: Option<StampInput>,
    armed: Option<Arm>,
    overflowed: bool,
    /// The shared send queue that consumes the entries, instead of a program (V6).
    ssq: Option<u32>,
}

/// The clock, and the timestamps of entries that wait, in their order.
#[derive(Debug)]
struct StampInput {
    clock: fn() -> Timestamp,
    ring: Producer<Timestamp>,
}

impl InputEnd {
    fn set_capacity(&mut self, capacity: usize) {
        let options = self.ignore_overrun || self.stamps.is_some();
        self.capacity = capacity;
        self.plain_limit = if options { 0 } else { capacity };
    }

    /// Upper bound of the entries that wait.
    fn waiting(&self) -> usize {
        self.pushed.wrapping_sub(self.taken)
    }
}

/// What pollers write, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Output {
    /// Entries taken out so far, for readers without the lock; stored after they have left the ring.
    taken: AtomicUsize,
    end: Mutex<OutputEnd>,
}

#[derive(Debug)]
struct OutputEnd {
    ring: Consumer<Wc>,
    /// Entries taken out so far, polled or removed by [`Cq::discard_qp_entries`].
    taken: usize,
    /// Entries of other queue pairs that [`Cq::discard_qp_entries`] took out of the ring: older than everything in it.
    kept: VecDeque<(Wc, Timestamp)>,
    /// Timestamps of the entries in the ring, in their order.
    stamps: Option<Consumer<Timestamp>>,
    /// There are neither kept entries nor timestamps.
    plain: bool,
}

impl OutputEnd {
    /// Not inlined: a poll of an empty queue saves no registers for it.
    #[inline(never)]
    fn pop(&mut self) -> Option<Wc> {
        if self.plain {
            return self.ring.pop();
        }
        self.pop_stamped().map(|(wc, _)| wc)
    }

    #[cold]
    #[inline(never)]
    fn pop_stamped(&mut self) -> Option<(Wc, Timestamp)> {
        if self.kept.is_empty() {
            let wc = self.ring.pop()?;
            // Pushed before the entry.
            let stamp = self.stamps.as_mut().and_then(Consumer::pop);
            return Some((wc, stamp.unwrap_or_default()));
        }
        let first = self.kept.pop_front();
        if self.kept.is_empty() {
            // Destroying a queue pair is rare; the memory is freed.
            self.keep(VecDeque::new());
        }
        first
    }

    fn keep(&mut self, entries: VecDeque<(Wc, Timestamp)>) {
        self.kept = entries;
        self.plain = self.kept.is_empty() && self.stamps.is_none();
    }
}

/// A completion queue cannot be created or changed as requested. Nothing has changed.
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
        Cq::make(
            number,
            capacity,
            None,
            CqOptions::default(),
            &ObserverCell::default(),
        )
    }

    /// The same with options.
    pub fn with_options(number: u32, capacity: usize, options: CqOptions) -> Result<Cq, CqError> {
        Cq::make(number, capacity, None, options, &ObserverCell::default())
    }

    /// The same, with the observer of its function.
    pub(crate) fn with_observer(
        number: u32,
        capacity: usize,
        options: CqOptions,
        observer: &ObserverCell,
    ) -> Result<Cq, CqError> {
        Cq::make(number, capacity, None, options, observer)
    }

    /// A queue that no program polls: when it is armed, an entry wakes this shared send queue (V6).
    pub(crate) fn for_ssq(ssq: u32, capacity: usize) -> Result<Cq, CqError> {
        Cq::make(
            0,
            capacity,
            Some(ssq),
            CqOptions::default(),
            &ObserverCell::default(),
        )
    }

    fn make(
        number: u32,
        capacity: usize,
        feeds: Option<u32>,
        options: CqOptions,
        observer: &ObserverCell,
    ) -> Result<Cq, CqError> {
        check_size(capacity)?;
        let (producer, consumer) = ring();
        let stamps = options.clock.map(|clock| (clock, ring()));
        let (stamps_in, stamps_out) = match stamps {
            Some((clock, (ring, consumer))) => (Some(StampInput { clock, ring }), Some(consumer)),
            None => (None, None),
        };
        let mut input = InputEnd {
            ring: producer,
            pushed: 0,
            taken: 0,
            capacity,
            plain_limit: capacity,
            ignore_overrun: options.ignore_overrun,
            stamps: stamps_in,
            armed: None,
            overflowed: false,
            ssq: feeds,
        };
        input.set_capacity(capacity);
        let output = OutputEnd {
            ring: consumer,
            taken: 0,
            kept: VecDeque::new(),
            plain: stamps_out.is_none(),
            stamps: stamps_out,
        };
        Ok(Cq {
            number,
            observer: observer.clone(),
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

    /// Entries that wait: an upper bound while other threads poll.
    pub fn len(&self) -> usize {
        // In this order: entries are counted as pushed before they are counted as taken, so `pushed` is never behind `taken`.
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

    /// A shared send queue consumes its entries (V6).
    pub(crate) fn is_for_ssq(&self) -> bool {
        self.ssq().is_some()
    }

    /// The number of the shared send queue that consumes its entries (V6).
    pub(crate) fn ssq(&self) -> Option<u32> {
        self.input.end.lock().ssq
    }

    /// Entries were lost: the queue is of no further use.
    pub fn has_overflowed(&self) -> bool {
        self.input.end.lock().overflowed
    }

    /// Takes the oldest entries, as many as `out` holds; returns how many.
    #[inline(always)]
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        if self.is_empty() {
            return 0;
        }
        if trace::is_active() {
            return self.poll_traced(out);
        }
        self.poll_with::<false>(out)
    }

    #[cold]
    #[inline(never)]
    fn poll_traced(&self, out: &mut [Wc]) -> usize {
        self.poll_with::<true>(out)
    }

    #[inline(always)]
    fn poll_with<const TRACED: bool>(&self, out: &mut [Wc]) -> usize {
        let mut end = self.output.end.lock();
        let waiting = self.waiting(&end);
        let mut count = 0;
        for slot in out.iter_mut().take(waiting) {
            let Some(wc) = end.pop() else { break };
            *slot = wc;
            count += 1;
        }
        self.count_taken(&mut end, count);
        if TRACED {
            self.trace_polled(&end, &out[..count]);
        }
        count
    }

    /// Takes the oldest entry, with the time at which it was written; zeros if the queue has no clock.
    pub fn poll_stamped(&self) -> Option<(Wc, Timestamp)> {
        if self.is_empty() {
            return None;
        }
        let mut end = self.output.end.lock();
        if self.waiting(&end) == 0 {
            return None;
        }
        let first = end.pop_stamped();
        self.count_taken(&mut end, first.is_some().into());
        if trace::is_active()
            && let Some((wc, _)) = &first
        {
            self.trace_polled(&end, core::slice::from_ref(wc));
        }
        first
    }

    /// Entries were taken, the last of those that are counted.
    #[cold]
    #[inline(never)]
    fn trace_polled(&self, end: &OutputEnd, taken: &[Wc]) {
        let first = end.taken.wrapping_sub(taken.len());
        for (at, wc) in taken.iter().enumerate() {
            self.observer.record(&TraceEvent::Polled {
                cq: self.number,
                position: first.wrapping_add(at) as u64,
                wc_qpn: wc.qpn,
                id: wc.id,
                op: wc.op,
                status: wc.status,
            });
        }
    }

    /// Before the entry can be polled, so that the events are in order.
    #[cold]
    #[inline(never)]
    fn trace_completion(&self, position: usize, wc: Wc) {
        self.observer.record(&TraceEvent::Completion {
            cq: self.number,
            position: position as u64,
            wc_qpn: wc.qpn,
            id: wc.id,
            op: wc.op,
            status: wc.status,
            len: wc.len,
        });
    }

    /// Requests one notification. A request for the next completion overrides one for a solicited completion.
    ///
    /// Entries that wait already do not notify: poll once more after arming.
    pub fn arm(&self, arm: Arm) {
        let mut end = self.input.end.lock();
        if end.armed != Some(Arm::Next) {
            end.armed = Some(arm);
        }
    }

    /// Withdraws the request for a notification: a thread that serves the queue polls it anyway and needs no event for its own pushes.
    pub fn disarm(&self) {
        self.input.end.lock().armed = None;
    }

    /// Adds an entry; false if the queue has no room and the entry is lost.
    pub fn push(&self, wc: Wc, outbox: &mut Outbox) -> bool {
        self.insert(wc, false, outbox)
    }

    /// The same, with a notification even if the queue is not armed, because the work request asked for it (N7).
    pub fn push_and_notify(&self, wc: Wc, outbox: &mut Outbox) -> bool {
        self.insert(wc, true, outbox)
    }

    fn insert(&self, wc: Wc, tell: bool, outbox: &mut Outbox) -> bool {
        if trace::is_active() {
            return self.insert_traced(wc, tell, outbox);
        }
        self.insert_with::<false>(wc, tell, outbox)
    }

    #[cold]
    #[inline(never)]
    fn insert_traced(&self, wc: Wc, tell: bool, outbox: &mut Outbox) -> bool {
        self.insert_with::<true>(wc, tell, outbox)
    }

    #[inline(always)]
    fn insert_with<const TRACED: bool>(&self, wc: Wc, tell: bool, outbox: &mut Outbox) -> bool {
        let mut end = self.input.end.lock();
        if end.waiting() >= end.plain_limit && !self.make_room(&mut end, outbox) {
            return false;
        }
        if TRACED {
            self.trace_completion(end.pushed, wc);
        }
        end.ring.push(wc);
        end.pushed = end.pushed.wrapping_add(1);
        // Release: a thread that loads this count finds the entry in the ring.
        self.input.pushed.store(end.pushed, Ordering::Release);
        let fires = match end.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wc.is_urgent(),
            None => false,
        };
        if fires || tell {
            // A notification that the request asked for also disarms the queue: the consumer polls anyway.
            end.armed = None;
            let (cq, reason) = (self.number, wc.reason());
            match end.ssq {
                None => outbox.push(Event::Completion { cq, reason }),
                Some(ssq) => outbox.wake_sends(ssq),
            }
        }
        true
    }

    /// Makes room for an entry, and reads the clock for it if the queue has one; false if there is no room.
    #[cold]
    #[inline(never)]
    fn make_room(&self, end: &mut InputEnd, outbox: &mut Outbox) -> bool {
        if end.waiting() >= end.capacity {
            end.taken = self.output.taken.load(Ordering::Acquire);
        }
        if end.waiting() >= end.capacity {
            if !end.ignore_overrun {
                // Raised once; the queue pairs that complete here must fail.
                if !core::mem::replace(&mut end.overflowed, true) {
                    outbox.push(Event::CqOverflow { cq: self.number });
                }
                return false;
            }
            // Both locks, in this order only; no thread that holds the consumers' lock waits for the producers'.
            let mut output = self.output.end.lock();
            // Not if a poll has made room meanwhile.
            if end.pushed.wrapping_sub(output.taken) >= end.capacity {
                let oldest = output.pop();
                self.count_taken(&mut output, oldest.is_some().into());
            }
            end.taken = output.taken;
        }
        if let Some(stamps) = &mut end.stamps {
            stamps.ring.push((stamps.clock)());
        }
        true
    }

    /// Changes the size; entries that wait stay, in order.
    pub fn resize(&self, capacity: usize) -> Result<(), CqError> {
        check_size(capacity)?;
        // No entry is added while this lock is held, so the number of waiting entries can only shrink.
        let mut end = self.input.end.lock();
        end.taken = self.output.taken.load(Ordering::Acquire);
        let waiting = end.waiting();
        if waiting > capacity {
            return Err(CqError::Waiting {
                waiting,
                wanted: capacity,
            });
        }
        end.set_capacity(capacity);
        Ok(())
    }

    /// Removes the entries of a queue pair that is being destroyed or reset; those of others keep their order.
    pub fn discard_qp_entries(&self, qpn: u32) {
        drop(self.take_qp_entries(qpn));
    }

    /// Takes the entries of a queue pair that is destroyed or moved away, in order.
    pub(crate) fn take_qp_entries(&self, qpn: u32) -> Vec<Wc> {
        self.take_entries(|wc| wc.qpn == qpn)
    }

    /// Takes the entries of the receives of a queue pair, and leaves those of its sends (V6).
    pub(crate) fn take_received_entries(&self, qpn: u32) -> Vec<Wc> {
        self.take_entries(|wc| wc.qpn == qpn && wc.op.is_receive())
    }

    fn take_entries(&self, which: impl Fn(&Wc) -> bool) -> Vec<Wc> {
        let mut taken = Vec::new();
        if self.is_empty() {
            return taken;
        }
        let mut end = self.output.end.lock();
        let mut kept = VecDeque::new();
        for _ in 0..self.waiting(&end) {
            match end.pop_stamped() {
                Some((wc, _)) if which(&wc) => taken.push(wc),
                Some(entry) => kept.push_back(entry),
                None => break,
            }
        }
        end.keep(kept);
        self.count_taken(&mut end, taken.len());
        taken
    }

    /// Entries that wait and are counted: an entry that is in the ring but not yet counted must not be taken.
    fn waiting(&self, end: &OutputEnd) -> usize {
        let pushed = self.input.pushed.load(Ordering::Acquire);
        pushed.wrapping_sub(end.taken)
    }

    /// Counts `count` more entries as taken.
    fn count_taken(&self, end: &mut OutputEnd, count: usize) {
        end.taken = end.taken.wrapping_add(count);
        // Release: a thread that loads this count also sees at least as many pushes.
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
