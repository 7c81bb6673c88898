//! When a shard polls instead of sleeping: while requests keep arriving in quick succession, waking up would take longer than serving one.
//! A shard polls for a short time behind each request. No more shards of the process do so than there are processors to spare, none does while the
//! machine has more runnable threads than processors, and one that loses its processor to others sleeps as before (`preemption.rs`).

use core::time::Duration;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicUsize, Ordering};

use crate::poll::preemption;
use crate::sys;

/// Requests in quick succession before a shard polls for the next one.
const REQUESTS_TO_START: u32 = 3;

/// How long the number of runnable threads is taken for the same: reading it takes some microseconds.
const LOAD_CHECK: Duration = Duration::from_millis(10);

/// Shards of this process that poll.
static POLLING: AtomicUsize = AtomicUsize::new(0);

/// The recent requests of one shard. Used by its thread only.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// How long to poll for the next request, and how soon a request follows another in quick succession.
    limit: Duration,
    /// How many shards poll.
    polling: &'static AtomicUsize,
    /// How many may poll at once: one processor is left to the program.
    spare: usize,
    /// The last request.
    last: Time,
    /// Requests in quick succession.
    streak: u32,
    /// When the runnable threads of the machine were counted last.
    load_checked: Time,
    /// Whether there were more of them than processors.
    is_overloaded: bool,
}

/// A shard polls as long as this exists.
pub(super) struct Polling(&'static AtomicUsize);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BusyPoll {
    pub(super) fn new(limit: Duration) -> BusyPoll {
        BusyPoll {
            limit,
            polling: &POLLING,
            spare: sys::parallelism().saturating_sub(1),
            last: Time::ZERO,
            streak: 0,
            load_checked: Time::ZERO,
            is_overloaded: false,
        }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The shard has waited until now, asleep or not, and has a request or something else to do.
    pub(super) fn note_wake(&mut self, now: Time, has_slept: bool, is_request: bool) {
        if self.limit.is_zero() {
            return;
        }
        if has_slept {
            // The time asleep is no gap in which it was preempted.
            preemption::note_sleep(now);
        }
        if is_request {
            self.note_request(now);
            if self.streak >= REQUESTS_TO_START && now.since(self.load_checked) >= LOAD_CHECK {
                self.load_checked = now;
                self.note_load(sys::runnable_threads(), sys::online_processors());
            }
        }
    }

    /// The threads that run or could run now, this one included, and the processors for them; unknown threads are taken for few.
    fn note_load(&mut self, runnable: Option<usize>, processors: usize) {
        self.is_overloaded = runnable.is_some_and(|threads| threads > processors);
    }

    fn note_request(&mut self, now: Time) {
        let gap = now.since(self.last);
        self.last = now;
        self.streak = if gap <= self.limit {
            self.streak.saturating_add(1)
        } else {
            0
        };
    }

    /// The shard has nothing to do: whether it polls for the next request.
    pub(super) fn begin(&self) -> Option<Polling> {
        if self.limit.is_zero() || self.streak < REQUESTS_TO_START || self.is_overloaded {
            return None;
        }
        let others = self.polling.fetch_add(1, Ordering::Relaxed);
        let polling = Polling(self.polling);
        (others < self.spare).then_some(polling)
    }

    /// A poll found nothing: false if the shard should rather sleep.
    pub(super) fn goes_on(now: Time) -> bool {
        !preemption::note_empty_poll(now, 0, 0)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    use verbena_stream::saturating_nanos;

    const LIMIT: Duration = Duration::from_micros(50);

    fn at(micros: u64) -> Time {
        Time::from_nanos(saturating_nanos(Duration::from_micros(micros)))
    }

    /// Shards of engines that other tests run do not count.
    static POLLING_HERE: AtomicUsize = AtomicUsize::new(0);

    fn shard() -> BusyPoll {
        BusyPoll {
            polling: &POLLING_HERE,
            spare: 1,
            ..BusyPoll::new(LIMIT)
        }
    }

    #[test]
    fn shard_polls_while_requests_keep_arriving() {
        let (mut one, mut other) = (shard(), shard());
        for micros in [1000, 1020, 1040] {
            one.note_request(at(micros));
            assert!(one.begin().is_none(), "{micros}");
        }
        one.note_request(at(1060));
        let polling = one.begin();
        assert!(polling.is_some());

        // No processor is left for a second one.
        (0..9).for_each(|n| other.note_request(at(2000 + n)));
        assert!(other.begin().is_none());
        drop(polling);
        assert!(other.begin().is_some());

        one.note_request(at(1200));
        assert!(one.begin().is_none(), "requests are rare again");
        let mut crowded = BusyPoll {
            streak: 100,
            ..shard()
        };
        for (runnable, polls) in [
            (None, true),
            (Some(2), true),
            (Some(3), false),
            (Some(1), true),
        ] {
            crowded.note_load(runnable, 2);
            assert_eq!(crowded.begin().is_some(), polls, "{runnable:?}");
        }
        let never = BusyPoll {
            limit: Duration::ZERO,
            streak: 100,
            ..shard()
        };
        assert!(never.begin().is_none());
    }
}
