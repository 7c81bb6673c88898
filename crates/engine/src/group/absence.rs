//! Whether a borrower that did not come back in time stays away, or has no processor.
//! It promises to excuse nobody who sleeps elsewhere or computes. It refuses to decide for how long it excuses.
//!
//! On a busy machine a thread may have to wait for several milliseconds each time that others run. It comes back by itself, and whoever
//! took its connections over meanwhile would need a processor as well.

use core::time::Duration;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbena_stream::Time;

use super::{Group, WARY};
use crate::sys::{self, Glance};

/// Who borrowed a group.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Its thread; 0 if it is not known.
    thread: AtomicU32,
    /// When it was there last, as it was when it was missed: another time is another absence.
    since: AtomicU64,
    /// For how long it had run when it was looked at, in nanoseconds.
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

    /// It is not known who did.
    #[cfg(test)]
    pub(super) fn begin_unknown(&self) {
        self.thread.store(0, Ordering::Relaxed);
    }

    /// The timer misses the borrower, which was there `since`; it looks again after `usual`.
    pub(super) fn is_excused(&self, since: Time, usual: Duration) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        sys::glance(thread).is_some_and(|seen| self.excuses(since, seen, usual))
    }

    fn excuses(&self, since: Time, seen: Glance, usual: Duration) -> bool {
        let ran = u64::try_from(seen.ran.as_nanos()).unwrap_or(u64::MAX);
        let before = self.ran.swap(ran, Ordering::Relaxed);
        // What it does with a processor is not known before the second look.
        let first = self.since.swap(since.nanos(), Ordering::Relaxed) != since.nanos();
        seen.runnable && (first || Duration::from_nanos(ran.saturating_sub(before)) < usual / 2)
    }
}

impl Group {
    /// A borrower that is missed is at work for the group itself, or would be if it had a processor.
    pub(super) fn may_be_late(&self, lent: bool, there: Time) -> bool {
        let excused = || self.absence.is_excused(there, self.core.config.lend_time);
        lent && (self.at_work.load(Ordering::Relaxed) || excused())
    }

    /// Something waited for a thread that polls no more: one that spins on its memory, say, and comes only to post.
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
    fn who_sleeps_elsewhere_is_away() {
        let absence = Absence::default();
        assert!(!absence.excuses(SINCE, seen(false, 10), USUAL));
    }

    #[test]
    fn who_has_no_processor_is_excused_again_and_again() {
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
    fn who_computes_is_found_out_at_the_second_look() {
        let absence = Absence::default();
        assert!(absence.excuses(SINCE, seen(true, 10), USUAL));
        assert!(!absence.excuses(SINCE, seen(true, 900), USUAL));
    }

    #[test]
    fn who_came_back_may_be_missed_anew() {
        let absence = Absence::default();
        assert!(absence.excuses(SINCE, seen(true, 10), USUAL));
        let later = SINCE + USUAL;
        assert!(absence.excuses(later, seen(true, 900), USUAL));
    }

    #[test]
    fn an_unknown_borrower_is_away() {
        assert!(!Absence::default().is_excused(SINCE, USUAL));
    }

    #[test]
    fn this_thread_is_here() {
        let absence = Absence::default();
        absence.begin();
        assert!(absence.is_excused(SINCE, USUAL));
    }
}
