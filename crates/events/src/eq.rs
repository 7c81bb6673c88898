//! An event queue: the adapter writes entries, the driver reads them, with one signal per arming (E1 to E6).
//! No event is lost, doubled or reordered, whether the queue is read, resized, switched or full meanwhile. The queue decides
//! when to signal; the vector was passed with the last event.
//!
//! *Producers*, and commands that resize or switch the queue, exclude each other by a short lock. The *driver* reads entries by
//! their codes and writes one register; it takes no lock for that. State and both indicators are one word (`eq/word.rs`), which
//! producers and the register change by compare-and-exchange; so an entry is written before the queue is armed, and arming finds
//! it, or after, and writing it signals.
//!
//! **No room.** An event that does not fit is kept in the backlog, in order, up to [`Settings::backlog`]. A thread that unlocks with
//! a backlog looks at the word once more; a thread that advances the read indicator and finds a backlog tries the lock, and need
//! not wait for it: if it is taken, its holder has yet to look. Both exchange the word, so one of them sees the other.
//!
//! **Switching.** Entries that wait stay in the old memory. After them the adapter writes an entry that sends the reader to the new
//! memory; for that there is always one slot more than entries. The relative indicator counts entries in whichever memory they are.
//! Modelled with loom in `eq/tests.rs`.

use std::collections::VecDeque;

use verbena_stream::{Time, saturating_nanos};
use verbena_sync::primitives::{Arc, AtomicU32, AtomicU64, Mutex, Ordering};
use verbena_sync::ring::{Producer, ring};

use crate::eqe::{Eqe, Form};
use crate::moderation::{Adaptive, Hold, Moderation};
use crate::vector::Signal;

mod command;
mod memory;
mod post;
mod reader;
mod register;
mod state;
mod word;

pub use command::ResizeError;
pub use memory::{MAX_ENTRIES, Memory, MemoryError};
pub use reader::Reader;
pub use register::{Doorbell, Indicator, Malformed};
pub use state::{Act, Input, State};
use word::{Word, distance};

/// Memories of one queue that may still have unread entries, while it moves on.
pub const MAX_PENDING_SWITCHES: usize = 16;
/// No tick is due.
const NEVER: u64 = u64::MAX;

/// Settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Events that are kept while the queue is full.
    pub backlog: usize,
    /// The write indicator is published every so many entries (E5).
    pub publish_every: u32,
    /// How signals are moderated.
    pub moderation: Moderation,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            backlog: 4096,
            publish_every: 16,
            moderation: Moderation::Off,
        }
    }
}

/// Why a call on an event queue failed. Nothing has changed, except where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EqError {
    /// The queue has no memory: it was never initialised, was destroyed, or lost an event.
    #[error("the event queue is undefined")]
    Undefined,
    /// The queue has memory already.
    #[error("the event queue is initialised already")]
    AlreadyInitialised,
    /// The read indicator would pass the write indicator.
    #[error(
        "the read indicator at {read} cannot advance by {by}: the write indicator stands at {written}"
    )]
    PastWriteIndicator {
        /// The read indicator.
        read: u32,
        /// How far it should go.
        by: u32,
        /// Where entries end.
        written: u32,
    },
    /// The number does not fit entries of four bytes.
    #[error("number {0} does not fit an entry of four bytes")]
    NumberTooLarge(u32),
    /// The new memory has entries of another form.
    #[error("the event queue has {has:?} entries, the new memory {new:?}")]
    Form {
        /// The queue's form.
        has: Form,
        /// The new memory's.
        new: Form,
    },
    /// The queue was switched too often before its reader followed.
    #[error("{MAX_PENDING_SWITCHES} memories of the event queue have unread entries")]
    TooManySwitches,
    /// The event cannot be kept, and the queue is undefined now (E2): the adapter must shut down.
    #[error("the event queue is full and {kept} events are kept beside it: it is undefined now")]
    Lost {
        /// Events in the backlog.
        kept: usize,
    },
}

/// What the caller does after a step, holding no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "a signal that is not given leaves its driver asleep"]
pub struct Outcome {
    /// Signal now.
    pub signal: Option<Signal>,
    /// Call [`EventQueue::tick`] at this time.
    pub due: Option<Time>,
    /// The queue has no room any more: reported once until it has.
    pub overflow: bool,
}

/// An event queue, the adapter's end.
#[derive(Debug)]
pub struct EventQueue {
    word: AtomicU64,
    /// How to signal, as passed with the last event.
    signal: AtomicU32,
    /// Position after the last entry, including one that is being written: stored before its code is, when the word does not count it yet.
    placed: AtomicU32,
    /// The write indicator, as the driver may read it; updated every [`Settings::publish_every`] entries.
    published: AtomicU32,
    /// When a signal that is held back is due, in nanoseconds.
    due: AtomicU64,
    /// What holds signals back: count and nanoseconds.
    count: AtomicU32,
    delay: AtomicU64,
    end: Mutex<End>,
}

/// What producers and commands share.
#[derive(Debug)]
struct End {
    memory: Option<WritePosition>,
    backlog: VecDeque<Eqe>,
    settings: Settings,
    adaptive: Adaptive,
    /// The overflow was reported.
    overflow_reported: bool,
    /// The read indicator when room was last checked.
    seen: u32,
}

/// Where entries go.
#[derive(Debug)]
struct WritePosition {
    memory: Arc<Memory>,
    slot: usize,
    /// Position of the memory's first entry.
    base: u32,
    /// Tells the reader of new memory.
    moves: Producer<Arc<Memory>>,
    /// Bases of memories whose predecessors may have unread entries, oldest first.
    bases: VecDeque<u32>,
}

impl WritePosition {
    /// Room for one more entry.
    fn has_room(&mut self, word: Word) -> bool {
        let (here, unread) = (distance(self.base, word.written), word.unread());
        if unread <= here {
            // All older memory is read. The base follows the reader, because positions wrap around.
            self.base = word.read;
            self.bases.clear();
        }
        here.min(unread) < self.memory.entries() as u32
    }
}

impl EventQueue {
    /// An undefined queue.
    pub fn new() -> EventQueue {
        EventQueue {
            word: AtomicU64::new(Word::UNDEFINED.pack()),
            signal: AtomicU32::new(Signal::Line.pack()),
            placed: AtomicU32::new(0),
            published: AtomicU32::new(0),
            due: AtomicU64::new(NEVER),
            count: AtomicU32::new(0),
            delay: AtomicU64::new(0),
            end: Mutex::new(End {
                memory: None,
                backlog: VecDeque::new(),
                settings: Settings::default(),
                adaptive: Adaptive::default(),
                overflow_reported: false,
                seen: 0,
            }),
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.load_word().state
    }

    /// Entries that the driver has not acknowledged.
    pub fn unread(&self) -> u32 {
        self.load_word().unread()
    }

    /// The write indicator as published: less than [`Settings::publish_every`] entries behind the real one (E5).
    pub fn write_indicator(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// The read indicator as last written by the driver.
    #[cfg(test)]
    pub(crate) fn read_indicator(&self) -> u32 {
        self.load_word().read
    }

    fn load_word(&self) -> Word {
        Word::unpack(self.word.load(Ordering::Acquire))
    }

    fn hold(&self) -> Hold {
        Hold {
            count: self.count.load(Ordering::Relaxed),
            delay: core::time::Duration::from_nanos(self.delay.load(Ordering::Relaxed)),
        }
    }

    fn set_hold(&self, hold: Hold) {
        self.count.store(hold.count, Ordering::Relaxed);
        let nanos = saturating_nanos(hold.delay);
        self.delay.store(nanos, Ordering::Relaxed);
    }

    /// Changes the word in one step. It is exchanged even if it stays the same: other threads rely on the order of exchanges.
    fn step<T, E>(&self, mut f: impl FnMut(Word) -> Result<(Word, T), E>) -> Result<(Word, T), E> {
        let mut old = self.word.load(Ordering::Acquire);
        loop {
            let (new, value) = f(Word::unpack(old))?;
            let swap = self.word.compare_exchange_weak(
                old,
                new.pack(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swap {
                Ok(_) => return Ok((new, value)),
                Err(now) => old = now,
            }
        }
    }

    /// As [`step`](EventQueue::step), for a change that cannot fail.
    fn change<T>(&self, mut f: impl FnMut(Word) -> (Word, T)) -> (Word, T) {
        match self.step(|word| Ok::<_, core::convert::Infallible>(f(word))) {
            Ok(done) => done,
            Err(never) => match never {},
        }
    }

    fn apply(&self, act: Act, out: &mut Outcome) {
        if act == Act::Signal {
            let signal = self.signal.load(Ordering::Relaxed);
            out.signal = Some(Signal::unpack(signal));
        }
    }

    /// A signal is held back: requests a tick when it is due, unless one is requested already.
    fn wait(&self, now: Time, hold: Hold, out: &mut Outcome) {
        let due = now + hold.delay;
        let swap =
            self.due
                .compare_exchange(NEVER, due.nanos(), Ordering::AcqRel, Ordering::Acquire);
        if swap.is_ok() {
            out.due = Some(due);
        }
    }

    /// The time of moderation may be over (E6).
    pub fn tick(&self, now: Time) -> Outcome {
        let mut out = Outcome::default();
        let due = self.due.load(Ordering::Acquire);
        if due == NEVER || due > now.nanos() {
            out.due = (due != NEVER).then(|| Time::from_nanos(due));
            return out;
        }
        // In this order: a producer whose entry the exchange of the word does not see finds no tick requested, and requests one.
        self.due.swap(NEVER, Ordering::AcqRel);
        let (_, act) = self.change(|word| {
            let unread = word.unread() > 0;
            let (state, act) = word.state.next(Input::Due { unread });
            (Word { state, ..word }, act)
        });
        self.apply(act, &mut out);
        out
    }
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        EventQueue::new()
    }
}

#[cfg(test)]
mod tests;
