//! When a group is lent to a polling thread: after enough consecutive empty polls, unless the last borrower stayed away not long ago.
//! It only chooses when [`Event::Borrowed`](crate::poll::owner::Event::Borrowed) is reported, and whether threads may sleep with the
//! group; which thread serves is decided by the owner.

use verbena_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbena_stream::Time;

use crate::config::Config;
use crate::sys;

/// How long nothing is lent after a borrower stayed away, at first and at most, in nanoseconds: it doubles each time.
pub(super) const LEND_BACKOFF: (u64, u64) = (20_000_000, 1_280_000_000);

/// Empty polls of a group that is not lent, and the backoff.
#[derive(Debug)]
pub(super) struct Lending {
    /// Consecutive empty polls.
    polls: AtomicU32,
    /// Nothing is lent before this time, in nanoseconds: the last borrower stayed away while input waited, or the shard serves bulk traffic.
    pub(super) blocked_until: AtomicU64,
    /// The interval for the next time.
    pub(super) backoff: AtomicU64,
}

impl Default for Lending {
    fn default() -> Lending {
        Lending {
            polls: AtomicU32::new(0),
            blocked_until: AtomicU64::new(0),
            backoff: AtomicU64::new(LEND_BACKOFF.0),
        }
    }
}

impl Lending {
    /// Counts an empty poll; true if there were enough of them. The one before it was at `before`.
    pub(super) fn is_due(&self, now: Time, before: Time, config: &Config) -> bool {
        let blocked = now.nanos() < self.blocked_until.load(Ordering::Relaxed);
        if blocked || now.since(before) > config.lend_time {
            self.reset_polls();
            return false;
        }
        let due = self.polls.fetch_add(1, Ordering::Relaxed) + 1 >= config.lend_polls;
        if due {
            self.reset_polls();
        }
        due
    }

    /// Counts empty polls from the beginning.
    pub(super) fn reset_polls(&self) {
        self.polls.store(0, Ordering::Relaxed);
    }

    /// The last borrower stayed away while input waited, not long ago.
    pub(super) fn is_blocked(&self) -> bool {
        let until = self.blocked_until.load(Ordering::Relaxed);
        // For most groups it is 0, and the clock need not be read.
        if until == 0 {
            return false;
        }
        let blocked = sys::now().nanos() < until;
        if !blocked {
            // It has expired. The exchange fails if a new time was set meanwhile, which counts at the next call.
            let _ =
                self.blocked_until
                    .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        blocked
    }

    /// Nothing is lent before this time.
    pub(super) fn block_until(&self, until: Time) {
        self.blocked_until.store(until.nanos(), Ordering::Relaxed);
    }

    /// The group may be lent again.
    pub(super) fn unblock(&self) {
        self.blocked_until.store(0, Ordering::Relaxed);
    }

    /// Input waited for a thread that no longer polls; it may spin on its memory and only post.
    pub(super) fn back_off(&self, now: Time) {
        let backoff = self.backoff.load(Ordering::Relaxed);
        let next = (backoff * 2).min(LEND_BACKOFF.1);
        self.backoff.store(next, Ordering::Relaxed);
        self.blocked_until
            .store(now.nanos() + backoff, Ordering::Relaxed);
    }

    /// The borrower polls as expected.
    pub(super) fn reset_backoff(&self) {
        self.backoff.store(LEND_BACKOFF.0, Ordering::Relaxed);
    }
}
