//! What the two threads of a measurement know of each other: whose turn it is, and when a packet came to be.
//! It promises that one who fails does not leave the other waiting. It refuses to carry data.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Error;

/// Packets and turns.
#[derive(Debug)]
pub(super) struct Stage {
    epoch: Instant,
    /// Turns that do not count, and all of them: even ones go to the unit.
    pub(super) warm: u64,
    pub(super) all: u64,
    /// The packet that is to come next.
    turn: AtomicU64,
    /// Packets that have come to be, and when the last did, in nanoseconds.
    there: AtomicU64,
    born: AtomicU64,
    /// Sides that are done.
    ended: AtomicU32,
    failed: AtomicBool,
}

impl Stage {
    pub(super) fn new(count: u32) -> Stage {
        let counted = 2 * u64::from(count);
        // An even number, so that both ways are warm.
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

    /// Everything before this packet has arrived.
    pub(super) fn is_turn(&self, turn: u64) -> bool {
        self.turn.load(Ordering::Acquire) == turn
    }

    /// Its sender has it from now on.
    pub(super) fn begin(&self, turn: u64) {
        self.born.store(self.now(), Ordering::Relaxed);
        self.there.store(turn + 1, Ordering::Release);
    }

    /// Its sender has it.
    pub(super) fn is_there(&self, turn: u64) -> bool {
        self.there.load(Ordering::Acquire) == turn + 1
    }

    /// Its receiver has it: how long that took.
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.now() - self.born.load(Ordering::Relaxed))
    }

    /// The next turn may begin.
    pub(super) fn pass(&self, turn: u64) {
        self.turn.store(turn + 1, Ordering::Release);
    }

    /// One side is done.
    pub(super) fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Both are.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) == 2
    }

    /// Says that nothing will come any more if this fails.
    pub(super) fn keep<T>(&self, play: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let played = play();
        if played.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        played
    }

    /// The other side goes on.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::Failed("the other side failed".into()));
        }
        Ok(())
    }
}
