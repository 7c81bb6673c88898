//! What the timer knows of a borrower, and its judgement: present, busy, or away.
//! A borrower that posts to many connections, serves the group, or has no processor may stay away for [`BUSY_FACTOR`] times `lend_time`. One
//! without a processor is runnable and has hardly run since it was missed; a thread that sleeps elsewhere or computes is not excused.
//!
//! On a busy machine a thread may wait for several milliseconds each time that others run. It comes back by itself, and a shard that
//! took its connections over meanwhile would need a processor as well.

use core::time::Duration;

use verbena_stream::{Time, saturating_nanos};
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::Group;
use crate::poll::owner::{Judgement, Owner};
use crate::sys::{self, SchedState};

/// A polling thread that posts to many connections may stay away for this multiple of `lend_time`: one that answers a batch of
/// completions with as many long messages is busy, and comes back. With few connections it may instead be spinning on its memory,
/// waiting for data that the shard must receive. A thread without a processor may stay away as long.
pub(super) const BUSY_FACTOR: u32 = 8;

/// The last borrower of a group.
#[derive(Debug, Default)]
pub(super) struct Borrower {
    /// Its thread id; 0 if unknown.
    thread: AtomicU32,
    /// Its last poll when it was missed: another value is another absence.
    missed_at: AtomicU64,
    /// Its processor time at the last check, in nanoseconds.
    cpu_time: AtomicU64,
    /// The last poll, in nanoseconds; also of a thread that has not borrowed the group.
    last_poll: AtomicU64,
    /// A poll found completions since the timer last expired.
    found: AtomicBool,
    /// Requests were posted since the timer last expired; set in crowded groups only.
    posted: AtomicBool,
    /// A thread serves the group by polling at this moment.
    serving: AtomicBool,
}

impl Borrower {
    /// The queue was polled; returns the time of the poll before.
    pub(super) fn note_poll(&self, now: Time) -> Time {
        Time::from_nanos(self.last_poll.swap(now.nanos(), Ordering::Relaxed))
    }

    /// The borrower is active: counts as a poll.
    pub(super) fn set_last_poll(&self, now: Time) {
        self.last_poll.store(now.nanos(), Ordering::Relaxed);
    }

    /// The last poll.
    pub(super) fn last_poll(&self) -> Time {
        Time::from_nanos(self.last_poll.load(Ordering::Relaxed))
    }

    /// A poll found completions.
    pub(super) fn note_found(&self) {
        set_once(&self.found);
    }

    /// Requests were posted.
    pub(super) fn note_post(&self) {
        set_once(&self.posted);
    }

    /// Requests were posted since the timer last expired.
    #[cfg(test)]
    pub(super) fn has_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// A turn of a polling thread begins or ends.
    pub(super) fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Relaxed);
    }

    /// A thread serves the group by polling at this moment.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    /// The judgement of the timer; `lent` if there is a borrower.
    fn judge(&self, now: Time, lent: bool, usual: Duration) -> Judgement {
        if self.found.swap(false, Ordering::Relaxed) {
            self.set_last_poll(now);
        }
        let posted = self.posted.swap(false, Ordering::Relaxed);
        let last_poll = self.last_poll();
        let away = now.since(last_poll);
        if away <= usual {
            Judgement::Present
        } else if away <= usual * BUSY_FACTOR
            && (posted || lent && self.is_delayed(last_poll, usual))
        {
            Judgement::Busy
        } else {
            Judgement::Away
        }
    }

    /// A missing borrower is serving the group itself, or has no processor.
    fn is_delayed(&self, last_poll: Time, usual: Duration) -> bool {
        self.is_serving() || self.is_waiting_for_cpu(last_poll, usual)
    }

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
        let ran = saturating_nanos(seen.cpu_time);
        let before = self.cpu_time.swap(ran, Ordering::Relaxed);
        // How it uses its processor is not known before the second check.
        let first = self.missed_at.swap(since.nanos(), Ordering::Relaxed) != since.nanos();
        seen.runnable && (first || Duration::from_nanos(ran.saturating_sub(before)) < usual / 2)
    }
}

/// Loaded first: it is nearly always set already.
fn set_once(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

impl Group {
    /// The timer's judgement of the owner. One that sleeps serves the group.
    pub(super) fn judge_borrower(&self, owner: Owner, now: Time) -> Judgement {
        if owner.sleepers() > 0 {
            Judgement::Present
        } else if self.compare_bulk(now, owner.is_lent()) {
            Judgement::Bulk
        } else {
            let lend_time = self.core.config.lend_time;
            self.borrower.judge(now, owner.has_borrower(), lend_time)
        }
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
