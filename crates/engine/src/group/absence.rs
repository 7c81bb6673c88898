//! Distinguishes a borrower that stays away from one that has no processor: the latter is runnable and has hardly run since it was missed.
//! A thread that sleeps elsewhere or computes is not excused. How long an excuse lasts is decided by the caller.
//!
//! On a busy machine a thread may wait for several milliseconds each time that others run. It comes back by itself, and a shard that
//! took its connections over meanwhile would need a processor as well.

use core::time::Duration;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbena_stream::Time;

use super::{Group, WARY};
use crate::sys::{self, Glance};

/// The last borrower of a group.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Its thread id; 0 if unknown.
    thread: AtomicU32,
    /// Its last poll when it was missed: another value is another absence.
    since: AtomicU64,
    /// Its processor time at the last check, in nanoseconds.
    ran: AtomicU64,
}

impl Absence {
    /// This thread borrows it.
    pub(super) fn begin(&self) {
        self.thread.store(sys::thread_id(), Ordering::Relaxed);
    }

    /// The last borrower is this thread.
    pub(super) fn is_of_this_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == sys::thread_id()
    }

    /// The borrower is unknown.
    #[cfg(test)]
    pub(super) fn begin_unknown(&self) {
        self.thread.store(0, Ordering::Relaxed);
    }

    /// Whether the borrower, which last polled at `since`, has no processor; called at intervals of `usual`.
    pub(super) fn is_excused(&self, since: Time, usual: Duration) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        sys::glance(thread).is_some_and(|seen| self.excuses(since, seen, usual))
    }

    fn excuses(&self, since: Time, seen: Glance, usual: Duration) -> bool {
        let ran = u64::try_from(seen.ran.as_nanos()).unwrap_or(u64::MAX);
        let before = self.ran.swap(ran, Ordering::Relaxed);
        // How it uses its processor is not known before the second check.
        let first = self.since.swap(since.nanos(), Ordering::Relaxed) != since.nanos();
        seen.runnable && (first || Duration::from_nanos(ran.saturating_sub(before)) < usual / 2)
    }
}

impl Group {
    /// A missing borrower is serving the group itself, or has no processor.
    pub(super) fn may_be_late(&self, lent: bool, there: Time) -> bool {
        let excused = || self.absence.is_excused(there, self.core.config.lend_time);
        lent && (self.at_work.load(Ordering::Relaxed) || excused())
    }

    /// Input waited for a thread that no longer polls; it may spin on its memory and only post.
    pub(super) fn grow_wary(&self, now: Time) {
        let wariness = self.wariness.load(Ordering::Relaxed);
        let next = (wariness * 2).min(WARY.1);
        self.wariness.store(next, Ordering::Relaxed);
        self.wary_until
            .store(now.nanos() + wariness, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(1);

    const SINCE: Time = Time::from_nanos(5);

    fn seen(runnable: bool, micros: u64) -> Glance {
        let ran = Duration::from_micros(micros);
        Glance {
            runnable,
            ran,
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn sleeping_borrower_is_not_excused() {
        let absence = Absence::default();
        assert!(!absence.excuses(SINCE, seen(false, 10), USUAL));
    }

    #[test]
    fn runnable_borrower_is_excused() {
        let absence = Absence::default();
        for _ in 0..3 {
            assert!(absence.excuses(SINCE, seen(true, 10), USUAL));
        }
        assert!(
            !absence.excuses(SINCE, seen(false, 10), USUAL),
            "it had one, and went elsewhere"
        );
    }

    #[test]
    fn computing_borrower_is_not_excused_twice() {
        let absence = Absence::default();
        assert!(absence.excuses(SINCE, seen(true, 10), USUAL));
        assert!(!absence.excuses(SINCE, seen(true, 900), USUAL));
    }

    #[test]
    fn borrower_that_returned_is_excused_again() {
        let absence = Absence::default();
        assert!(absence.excuses(SINCE, seen(true, 10), USUAL));
        let later = SINCE + USUAL;
        assert!(absence.excuses(later, seen(true, 900), USUAL));
    }

    #[test]
    fn unknown_borrower_is_not_excused() {
        assert!(!Absence::default().is_excused(SINCE, USUAL));
    }

    #[test]
    fn calling_thread_is_excused() {
        let absence = Absence::default();
        absence.begin();
        assert!(absence.is_excused(SINCE, USUAL));
    }
}
