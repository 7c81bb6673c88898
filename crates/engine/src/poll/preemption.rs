//! Whether a polling thread competes for its processor, learnt from the gaps between its empty polls.
//! A thread that loses a large part of its time to preemptions enters a period during which an empty poll may sleep (`group/empty_poll_sleep.rs`).
//! A period ends by itself; the next one is longer if it begins soon.
//!
//! No system call is made while a thread polls without gaps.

use std::cell::Cell;

use verbena_stream::Time;
use verbena_sync::thread::thread_local;

use crate::sys;

/// The shortest gap between two empty polls that may be a preemption; for shorter ones the system call costs more than it saves.
const MIN_GAP: u64 = 500_000;
/// Gaps that take less than 1/PART of a thread's time start no period: sleeping would take longer than spinning.
const MIN_GAP_FRACTION: u64 = 4;
/// How long a period lasts at first and at most, in nanoseconds.
const PERIOD: (u64, u64) = (50_000_000, 1_600_000_000);
/// Gaps in quick succession that begin a period: the scheduler separates two threads woken on one processor after the first.
const GAPS_TO_START: u32 = 2;

/// The polling history of one thread.
#[derive(Debug, Clone, Copy)]
struct Polling {
    /// Its last empty poll, in nanoseconds.
    last_poll: u64,
    /// Involuntary context switches at the last query.
    preemptions: u64,
    /// The end of its last gap with a preemption, in nanoseconds.
    last_preemption: u64,
    /// Such gaps in quick succession.
    gaps: u32,
    /// The end of the current or last period, in nanoseconds.
    until: u64,
    /// The length of that period, in nanoseconds.
    period: u64,
    /// The group that its last empty polls were about.
    group: u64,
    /// The number of those polls, since the last that found completions.
    polls: u32,
}

thread_local! {
    static POLLING: Cell<Polling> = const { Cell::new(Polling::NEW) };
}

/// This thread polled a group's queue and found it empty: true if it competes for its processor, and its last `polls` polls were empty and
/// about this group alone.
pub(crate) fn note_empty_poll(now: Time, group: u64, polls: u32) -> bool {
    let note = |cell: &Cell<Polling>| {
        let mut polling = cell.get();
        let competes = polling.note(now.nanos(), group, sys::preemptions);
        cell.set(polling);
        competes && polling.polls >= polls
    };
    // Thread-local storage is gone while a thread ends.
    POLLING.try_with(note).unwrap_or(false)
}

/// A poll of this thread found completions.
pub(crate) fn note_completions() {
    let note = |cell: &Cell<Polling>| {
        let mut polling = cell.get();
        polling.polls = 0;
        cell.set(polling);
    };
    let _ = POLLING.try_with(note);
}

/// Records that this thread slept in a poll: the time asleep is no gap.
pub(crate) fn note_sleep(now: Time) {
    let note = |cell: &Cell<Polling>| {
        cell.set(Polling {
            last_poll: now.nanos(),
            ..cell.get()
        });
    };
    let _ = POLLING.try_with(note);
}

impl Polling {
    const NEW: Polling = Polling {
        last_poll: 0,
        preemptions: 0,
        last_preemption: 0,
        gaps: 0,
        until: 0,
        period: 0,
        group: 0,
        polls: 0,
    };

    /// Notes an empty poll; true within a period.
    fn note(&mut self, now: u64, group: u64, preemptions: impl FnOnce() -> Option<u64>) -> bool {
        let gap = now.saturating_sub(self.last_poll);
        self.last_poll = now;
        if self.group == group {
            self.polls = self.polls.saturating_add(1);
        } else {
            self.group = group;
            self.polls = 1;
        }
        if gap > MIN_GAP
            && let Some(counted) = preemptions()
        {
            let before = core::mem::replace(&mut self.preemptions, counted);
            if gap == now {
                // The first poll: preemptions before it say nothing about a gap.
                self.last_preemption = now;
            } else if counted > before {
                let since = now - self.last_preemption.max(self.until).min(now);
                self.last_preemption = now;
                self.gaps = if gap >= since / MIN_GAP_FRACTION {
                    self.gaps + 1
                } else {
                    0
                };
                if now < self.until || self.gaps >= GAPS_TO_START {
                    self.begin_period(now);
                }
            }
        }
        now < self.until
    }

    /// Begins a period, or extends the current one.
    fn begin_period(&mut self, now: u64) {
        let over = now.saturating_sub(self.until);
        if now >= self.until {
            self.period = if over < self.period {
                (self.period * 2).min(PERIOD.1)
            } else {
                PERIOD.0
            };
        }
        self.gaps = 0;
        self.until = now + self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1 << 40;

    /// A thread that has polled before.
    fn polling() -> Polling {
        let mut polling = Polling::NEW;
        polling.note(START, 1, || Some(7));
        assert!(!polling.note(START + 1, 1, || None));
        polling
    }

    #[test]
    fn a_preempted_thread_competes_for_a_period() {
        let mut polling = polling();
        assert!(!polling.note(START + 4_000_000, 1, || Some(8)));
        let back = START + 8_000_000;
        assert!(polling.note(back, 1, || Some(9)));
        let quick = || panic!("asked without a gap");
        assert!(polling.note(back + 1000, 1, quick));
        let mut now = back;
        while now < back + PERIOD.0 {
            now += MIN_GAP;
            polling.note(now, 1, quick);
        }
        assert!(!polling.note(now, 1, quick));
    }

    #[test]
    fn a_gap_without_preemption_starts_nothing() {
        let mut polling = polling();
        assert!(!polling.note(START + 4_000_000, 1, || Some(7)));
        assert!(!polling.note(START + 8_000_000, 1, || None));
    }

    #[test]
    fn rare_preemptions_start_nothing() {
        let mut polling = polling();
        let mut now = START;
        for counted in 8..20 {
            while now % 400_000_000 > MIN_GAP {
                now += MIN_GAP;
                assert!(!polling.note(now, 1, || None));
            }
            now += 4_000_000;
            assert!(!polling.note(now, 1, || Some(counted)), "{counted}");
        }
    }

    #[test]
    fn preemptions_before_the_first_poll_start_nothing() {
        let mut polling = Polling::NEW;
        assert!(!polling.note(START, 1, || Some(7)));
    }

    #[test]
    fn periods_in_quick_succession_grow() {
        let mut polling = polling();
        let (mut now, mut counted, mut lengths) = (START + 1, 7, Vec::new());
        for _ in 0..6 {
            now = now.max(polling.until) + 4_000_000;
            counted += 1;
            assert!(!polling.note(now, 1, || Some(counted)));
            now += 4_000_000;
            counted += 1;
            assert!(polling.note(now, 1, || Some(counted)));
            lengths.push((polling.until - now) / PERIOD.0);
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32]);
        now = polling.until + 2 * PERIOD.1;
        assert!(!polling.note(now, 1, || Some(counted + 1)));
        now += 4_000_000;
        assert!(polling.note(now, 1, || Some(counted + 2)));
        assert_eq!(polling.until - now, PERIOD.0, "long after the last one");
    }

    #[test]
    fn polls_are_counted_for_one_group() {
        let mut polling = polling();
        assert_eq!(polling.polls, 2);
        polling.note(START + 2, 3, || None);
        assert_eq!(polling.polls, 1);
    }
}
