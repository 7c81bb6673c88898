//! What the two threads of a measurement share: the current turn, and the time at which a packet was ready. If one fails, the other ends,
//! too.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Error;

/// Turns and times.
#[derive(Debug)]
pub(super) struct Turns {
    epoch: Instant,
    /// Turns of the warm-up, and of all: even ones go to the unit.
    pub(super) warmup: u64,
    pub(super) total: u64,
    /// The packet to send next.
    turn: AtomicU64,
    /// Packets made ready, and when the last one was, in nanoseconds.
    ready_count: AtomicU64,
    ready_at: AtomicU64,
    /// Sides that have finished.
    finished: AtomicU32,
    failed: AtomicBool,
}

impl Turns {
    pub(super) fn new(count: u32) -> Turns {
        let counted = 2 * u64::from(count);
        // An even number, so that both directions are warmed up.
        let warm = (counted / 10).next_multiple_of(2).max(8);
        Turns {
            epoch: Instant::now(),
            warmup: warm,
            total: warm + counted,
            turn: AtomicU64::new(0),
            ready_count: AtomicU64::new(0),
            ready_at: AtomicU64::new(0),
            finished: AtomicU32::new(0),
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
    pub(super) fn set_ready(&self, turn: u64) {
        self.ready_at.store(self.now(), Ordering::Relaxed);
        self.ready_count.store(turn + 1, Ordering::Release);
    }

    /// Whether the sender has made the packet ready.
    pub(super) fn is_ready(&self, turn: u64) -> bool {
        self.ready_count.load(Ordering::Acquire) == turn + 1
    }

    /// The time since the packet was ready.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now() - self.ready_at.load(Ordering::Relaxed))
    }

    /// Starts the next turn.
    pub(super) fn advance(&self, turn: u64) {
        self.turn.store(turn + 1, Ordering::Release);
    }

    /// One side has finished.
    pub(super) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether both sides have finished.
    pub(super) fn is_over(&self) -> bool {
        self.finished.load(Ordering::Acquire) == 2
    }

    /// Runs one side, and tells the other if it fails.
    pub(super) fn run<T>(&self, play: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
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
