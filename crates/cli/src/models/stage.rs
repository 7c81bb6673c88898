//! What the two threads of a measurement share: the current turn, and the time at which a packet was ready. If one fails, the other ends,
//! too.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Error;

/// Turns and times.
#[derive(Debug)]
pub(super) struct Stage {
    epoch: Instant,
    /// Turns of the warm-up, and of all: even ones go to the unit.
    pub(super) warm: u64,
    pub(super) all: u64,
    /// The packet to send next.
    turn: AtomicU64,
    /// Packets made ready, and when the last one was, in nanoseconds.
    there: AtomicU64,
    born: AtomicU64,
    /// Sides that have finished.
    ended: AtomicU32,
    failed: AtomicBool,
}

impl Stage {
    pub(super) fn new(count: u32) -> Stage {
        let counted = 2 * u64::from(count);
        // An even number, so that both directions are warmed up.
        let warm = (counted / 10).next_multiple_of(2).max(8);
        Stage {
            epoch: Instant::now(),
            warm,
            all: warm + counted,
            turn: AtomicU64::new(0),
            there: AtomicU64::new(0),
            born: AtomicU64::new(0),
            ended: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Whether all packets before this one have arrived.
    pub(super) fn is_turn(&self, turn: u64) -> bool {
        self.turn.load(Ordering::Acquire) == turn
    }

    /// The sender has made the packet ready.
    pub(super) fn begin(&self, turn: u64) {
        self.born.store(self.now(), Ordering::Relaxed);
        self.there.store(turn + 1, Ordering::Release);
    }

    /// Whether the sender has made the packet ready.
    pub(super) fn is_there(&self, turn: u64) -> bool {
        self.there.load(Ordering::Acquire) == turn + 1
    }

    /// The time since the packet was ready.
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.now() - self.born.load(Ordering::Relaxed))
    }

    /// Starts the next turn.
    pub(super) fn pass(&self, turn: u64) {
        self.turn.store(turn + 1, Ordering::Release);
    }

    /// One side has finished.
    pub(super) fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether both sides have finished.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) == 2
    }

    /// Runs one side, and tells the other if it fails.
    pub(super) fn keep<T>(&self, play: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let played = play();
        if played.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        played
    }

    /// Fails if the other side has failed.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::Failed("the other side failed".into()));
        }
        Ok(())
    }
}
