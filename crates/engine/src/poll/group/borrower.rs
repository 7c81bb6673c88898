//! Distinguishes a borrower that stays away from one that has no processor: the latter is runnable and has hardly run since it was missed.
//! A thread that sleeps elsewhere or computes is not excused. How long an excuse lasts is decided by the caller.
//!
//! On a busy machine a thread may wait for several milliseconds each time that others run. It comes back by itself, and a shard that
//! took its connections over meanwhile would need a processor as well.

use core::time::Duration;
use verbena_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbena_stream::Time;

use super::{Group, LEND_BACKOFF};
use crate::sys::{self, SchedState};

/// The last borrower of a group.
#[derive(Debug, Default)]
pub(super) struct Borrower {
    /// Its thread id; 0 if unknown.
    thread: AtomicU32,
    /// Its last poll when it was missed: another value is another absence.
    missed_at: AtomicU64,
    /// Its processor time at the last check, in nanoseconds.
    cpu_time: AtomicU64,
}

impl Borrower {
    /// This thread borrows it.
    pub(super) fn set_current_thread(&self) {
        self.thread.store(sys::thread_id(), Ordering::Relaxed);
    }

    /// The last borrower is this thread.
    pub(super) fn is_current_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == sys::thread_id()
    }

    /// The borrower is unknown.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed);
    }

    /// Whether the borrower, which last polled at `since`, has no processor; called at intervals of `usual`.
    pub(super) fn is_waiting_for_cpu(&self, since: Time, usual: Duration) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        sys::sched_state(thread).is_some_and(|seen| self.check_waiting_for_cpu(since, seen, usual))
    }

    fn check_waiting_for_cpu(&self, since: Time, seen: SchedState, usual: Duration) -> bool {
        let ran = u64::try_from(seen.cpu_time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.cpu_time.swap(ran, Ordering::Relaxed);
        // How it uses its processor is not known before the second check.
        let first = self.missed_at.swap(since.nanos(), Ordering::Relaxed) != since.nanos();
        seen.runnable && (first || Duration::from_nanos(ran.saturating_sub(before)) < usual / 2)
    }
}

impl Group {
    /// A missing borrower is serving the group itself, or has no processor.
    pub(super) fn is_borrower_delayed(&self, lent: bool, there: Time) -> bool {
        let excused = || {
            self.borrower
                .is_waiting_for_cpu(there, self.core.config.lend_time)
        };
        lent && (self.is_serving.load(Ordering::Relaxed) || excused())
    }

    /// Input waited for a thread that no longer polls; it may spin on its memory and only post.
    pub(super) fn back_off_lending(&self, now: Time) {
        let wariness = self.lend_backoff.load(Ordering::Relaxed);
        let next = (wariness * 2).min(LEND_BACKOFF.1);
        self.lend_backoff.store(next, Ordering::Relaxed);
        self.no_lend_until
            .store(now.nanos() + wariness, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(1);

    const SINCE: Time = Time::from_nanos(5);

    fn seen(runnable: bool, micros: u64) -> SchedState {
        let ran = Duration::from_micros(micros);
        SchedState {
            runnable,
            cpu_time: ran,
            run_delay: Duration::ZERO,
        }
    }

    #[test]
    fn sleeping_borrower_is_not_excused() {
        let absence = Borrower::default();
        assert!(!absence.check_waiting_for_cpu(SINCE, seen(false, 10), USUAL));
    }

    #[test]
    fn runnable_borrower_is_excused() {
        let absence = Borrower::default();
        for _ in 0..3 {
            assert!(absence.check_waiting_for_cpu(SINCE, seen(true, 10), USUAL));
        }
        assert!(
            !absence.check_waiting_for_cpu(SINCE, seen(false, 10), USUAL),
            "it had one, and went elsewhere"
        );
    }

    #[test]
    fn computing_borrower_is_not_excused_twice() {
        let absence = Borrower::default();
        assert!(absence.check_waiting_for_cpu(SINCE, seen(true, 10), USUAL));
        assert!(!absence.check_waiting_for_cpu(SINCE, seen(true, 900), USUAL));
    }

    #[test]
    fn borrower_that_returned_is_excused_again() {
        let absence = Borrower::default();
        assert!(absence.check_waiting_for_cpu(SINCE, seen(true, 10), USUAL));
        let later = SINCE + USUAL;
        assert!(absence.check_waiting_for_cpu(later, seen(true, 900), USUAL));
    }

    #[test]
    fn unknown_borrower_is_not_excused() {
        assert!(!Borrower::default().is_waiting_for_cpu(SINCE, USUAL));
    }

    #[test]
    fn calling_thread_is_excused() {
        let absence = Borrower::default();
        absence.set_current_thread();
        assert!(absence.is_waiting_for_cpu(SINCE, USUAL));
    }
}
