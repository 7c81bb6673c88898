//! The interrupts of an adapter: from an event to the signal that wakes its driver, and serving it (E7 to E12).
//! Every event raised is passed to the handler once and in order, whatever is moved, resized or re-armed meanwhile. Threads belong to
//! [`Fire`]; timers and clocks to the caller.
//!
//! Raising: [`raise`](Interrupts::raise) finds event queue and signal, writes the entry and fires if the queue says so. Before it
//! fires it sets the queue's bit in the signal's *message*, in host memory; so the driver knows which queues to read without asking
//! the adapter, and a signal without a bit set is spurious and harmless. Serving: [`service`](Interrupts::service) reads those queues
//! by code and ends with the one register write per queue that acknowledges and re-arms. One thread at a time serves a queue; another
//! that arrives leaves its request to that thread, so that handlers keep the order and may raise events themselves.

use std::any::Any;

use verbena_stream::{Time, saturating_nanos};
use verbena_sync::combining_lock::CombiningLock;
use verbena_sync::locks::OnceLock;
use verbena_sync::primitives::{AtomicU64, AtomicUsize, Ordering};

use crate::arrangement::Arrangement;
use crate::eq::{EventQueue, Reader};
use crate::message_map::{FlatMap, MapError, MessageMap};
use crate::moderation::Arming;
use crate::steering::Steering;
use crate::vector::{Fire, Shutdown, Signal, VectorError, Vectors};

mod command;
mod raise;
mod service;

pub use command::CommandError;
pub use raise::{At, Origin, RaiseError, Raised};
pub use service::Served;

/// Most events that one service takes from a queue before it serves others.
pub const BUDGET: u32 = 256;
/// The queue of global and management events (E7).
pub const GLOBAL_QUEUE: u16 = 0;
/// The queue of RDMA events other than completions (E7).
pub const RDMA_QUEUE: u16 = 1;
/// The signal of global and management events (E7).
pub const GLOBAL_SIGNAL: Signal = Signal::Vector(0);
/// No poll is due.
const NEVER: u64 = u64::MAX;
/// The code in the message of a signal for entries that were written earlier: the queue says which.
const EARLIER: u8 = 0;

/// How events find their queue (E8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Scheme 1: a processor is found, and map\[duty\]\[processor\] names queue and signal.
    ByProcessor,
    /// Scheme 2: a queue is found (for channel events by the redirection entry, RDMA events name their own) and the flat map names the signal.
    ByQueue,
}

/// Accesses to registers of the adapter (E12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accesses {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// What a signal has cost so far (E12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalCounters {
    /// The line or a vector.
    pub signal: Signal,
    /// Times that it was fired.
    pub interrupts: u64,
    /// Events handled by the services of this signal.
    pub events: u64,
    /// Register writes of these services.
    pub writes: u64,
    /// The event code in its last message; 0 before the first one, and if it was for entries that were written earlier.
    pub code: u8,
}

impl SignalCounters {
    /// Events that needed no interrupt of their own.
    pub const fn coalesced(&self) -> u64 {
        self.events.saturating_sub(self.interrupts)
    }
}

/// Interrupts cannot be created so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NewError {
    /// The map.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The vectors.
    #[error(transparent)]
    Vector(#[from] VectorError),
}

/// An event queue with its reader.
#[derive(Debug)]
struct Slot {
    queue: EventQueue,
    reader: CombiningLock<Option<Reader>>,
    /// How the driver arms: 0 is [`Arming::Now`], otherwise the interval of [`Arming::WhenIdle`] in nanoseconds.
    arming: AtomicU64,
    /// When the driver polls next, in nanoseconds.
    next_poll: AtomicU64,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            queue: EventQueue::new(),
            reader: CombiningLock::new(None),
            arming: AtomicU64::new(0),
            next_poll: AtomicU64::new(NEVER),
        }
    }

    fn arming(&self) -> Arming {
        match self.arming.load(Ordering::Relaxed) {
            0 => Arming::Now,
            nanos => Arming::WhenIdle(core::time::Duration::from_nanos(nanos)),
        }
    }
}

/// The message of a signal, in host memory: the queues that it is for, one bit each, and the code of the event that caused it; with the
/// signal's counters (E12).
#[derive(Debug)]
struct PendingQueues {
    words: Box<[AtomicU64]>,
    code: AtomicUsize,
    interrupts: AtomicUsize,
    events: AtomicUsize,
    writes: AtomicUsize,
}

impl PendingQueues {
    fn new(queues: u16) -> PendingQueues {
        let words = usize::from(queues).div_ceil(64);
        PendingQueues {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            code: AtomicUsize::new(0),
            interrupts: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
        }
    }

    /// Sets the bit of a queue. Release: a thread that takes the bit finds the entry.
    fn set(&self, queue: u16) {
        let word = &self.words[usize::from(queue / 64)];
        word.fetch_or(1 << (queue % 64), Ordering::Release);
    }
}

/// The event queues, maps and vectors of one function, with the driver's readers.
pub struct Interrupts {
    scheme: Scheme,
    slots: Box<[Slot]>,
    map: MessageMap,
    flat: FlatMap,
    steering: Steering,
    vectors: Vectors,
    /// The message of the line, then that of each vector.
    pending_queues: Box<[PendingQueues]>,
    fire: Box<dyn Fire>,
    down: OnceLock<Shutdown>,
    reads: AtomicUsize,
    /// Register writes other than those at the end of a service.
    writes: AtomicUsize,
    /// Reserved by its owner for as long as it exists (V1).
    _claim: Option<Box<dyn Any + Send + Sync>>,
}

impl core::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Interrupts")
            .field("scheme", &self.scheme)
            .field("queues", &self.slots.len())
            .field("vectors", &self.vectors)
            .field("down", &self.down.get())
            .finish_non_exhaustive()
    }
}

impl Interrupts {
    /// The queues, maps and vectors of an arrangement. All queues are undefined: give them memory by [`create`](Interrupts::create), and
    /// arm them.
    pub fn new(
        arrangement: Arrangement,
        scheme: Scheme,
        processors: u16,
        fire: Box<dyn Fire>,
    ) -> Result<Interrupts, NewError> {
        let map = arrangement.map(processors)?;
        let flat = arrangement.flat(processors)?;
        let vectors = Vectors::new(arrangement.vectors(processors))?;
        let queues = flat.queues();
        let messages = (0..=vectors.requested()).map(|_| PendingQueues::new(queues));
        Ok(Interrupts {
            scheme,
            slots: (0..queues).map(|_| Slot::new()).collect(),
            map,
            flat,
            steering: Steering::all_to_processor_0(),
            pending_queues: messages.collect(),
            vectors,
            fire,
            down: OnceLock::new(),
            reads: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            _claim: None,
        })
    }

    /// Keeps `claim`, what its owner has reserved for these interrupts (V1), until they are dropped, and limits the number of vectors.
    pub fn set_claim(&mut self, claim: Box<dyn Any + Send + Sync>, vectors: u16) {
        self.vectors.limit(vectors);
        self._claim = Some(claim);
    }

    /// How many event queues there are.
    pub fn queues(&self) -> u16 {
        self.slots.len() as u16
    }

    /// How many processors the map has.
    pub fn processors(&self) -> u16 {
        self.map.processors()
    }

    /// A queue, for queries.
    pub fn queue(&self, queue: u16) -> Result<&EventQueue, MapError> {
        Ok(&self.slot(queue)?.queue)
    }

    /// The vectors, for granting and delivery.
    pub fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// Why the adapter is down, if it is.
    pub fn down(&self) -> Option<Shutdown> {
        self.down.get().copied()
    }

    /// Accesses to registers since the beginning (E12).
    pub fn accesses(&self) -> Accesses {
        Accesses {
            reads: self.reads.load(Ordering::Relaxed) as u64,
            writes: self.writes.load(Ordering::Relaxed) as u64
                + self.sum(|counters| counters.writes),
        }
    }

    /// Signals given since the beginning.
    pub fn fired(&self) -> u64 {
        self.sum(|counters| counters.interrupts)
    }

    /// The counters of the line and of each vector, since the beginning (E12).
    pub fn counters(&self) -> impl Iterator<Item = SignalCounters> {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed) as u64;
        let messages = self.pending_queues.iter().enumerate();
        messages.map(move |(packed, message)| SignalCounters {
            signal: Signal::unpack(packed as u32),
            interrupts: load(&message.interrupts),
            events: load(&message.events),
            writes: load(&message.writes),
            code: load(&message.code) as u8,
        })
    }

    fn sum(&self, count: impl Fn(SignalCounters) -> u64) -> u64 {
        self.counters().map(count).sum()
    }

    fn slot(&self, queue: u16) -> Result<&Slot, MapError> {
        let queues = self.queues();
        let slot = self.slots.get(usize::from(queue));
        slot.ok_or(MapError::Queue { queue, queues })
    }

    /// The message of a signal, if the signal exists.
    fn pending_queues(&self, signal: Signal) -> Result<&PendingQueues, VectorError> {
        if let Signal::Vector(vector) = signal {
            self.vectors.check(vector)?;
        }
        Ok(&self.pending_queues[signal.pack() as usize])
    }

    /// Fires held signals that are due (E6); returns when to call again.
    pub fn tick(&self, now: Time) -> Option<Time> {
        let mut next = None;
        for (number, slot) in self.slots.iter().enumerate() {
            let out = slot.queue.tick(now);
            next = earlier(next, self.apply_outcome(number as u16, out, EARLIER, now));
        }
        next
    }
}

/// The earlier of two times.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
