//! Busy polling before a sleep: while frames arrive in a stream, the next one comes sooner than a wakeup takes. Between polls it yields
//! the processor, and polling that finds nothing is tried again only after a number of sleeps that doubles, up to a limit ([`Backoff`]).

use std::thread::yield_now;
use std::time::{Duration, Instant};

use verbena::unstable::Backoff;

/// How long a driver polls after the last arrival.
const POLL_TIME: Duration = Duration::from_micros(500);

/// Decides whether a driver polls again or sleeps.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// Time of the last arrival.
    last_arrival: Instant,
    /// It has polled without result since.
    is_polling: bool,
    backoff: Backoff,
}

impl BusyPoll {
    pub(crate) fn new(now: Instant) -> BusyPoll {
        BusyPoll {
            last_arrival: now,
            is_polling: false,
            backoff: Backoff::default(),
        }
    }

    /// Called after each turn with whether it found anything; true: take another turn, false: sleep.
    pub(crate) fn should_poll(&mut self, came: bool, now: Instant) -> bool {
        if came {
            if core::mem::take(&mut self.is_polling) {
                self.backoff.record(true);
            }
            self.last_arrival = now;
            return true;
        }
        if !self.backoff.should_attempt() {
            return false;
        }
        if now.saturating_duration_since(self.last_arrival) < POLL_TIME {
            self.is_polling = true;
            yield_now();
            return true;
        }
        self.is_polling = false;
        self.backoff.record(false);
        false
    }

    /// Called after a sleep.
    pub(crate) fn note_sleep(&mut self) {
        self.backoff.skip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of sleeps until it polls again, without result.
    fn sleeps_until_poll(vigil: &mut BusyPoll, now: &mut Instant) -> u32 {
        let mut sleeps = 0;
        loop {
            // An arrival after each wakeup.
            assert!(vigil.should_poll(true, *now));
            let looks = vigil.should_poll(false, *now);
            if looks {
                *now += POLL_TIME;
                assert!(!vigil.should_poll(false, *now));
                return sleeps;
            }
            *now += POLL_TIME * 2;
            vigil.note_sleep();
            sleeps += 1;
        }
    }

    #[test]
    fn polling_ends_after_the_interval() {
        let now = Instant::now();
        let mut vigil = BusyPoll::new(now);
        assert!(vigil.should_poll(true, now));
        assert!(vigil.should_poll(false, now + POLL_TIME / 2));
        assert!(
            vigil.should_poll(true, now + POLL_TIME / 2),
            "it found something"
        );
        assert!(vigil.should_poll(false, now + POLL_TIME), "and looks anew");
        assert!(!vigil.should_poll(false, now + POLL_TIME * 2));
    }

    #[test]
    fn backoff_doubles_after_each_failure() {
        let mut now = Instant::now();
        let mut vigil = BusyPoll::new(now);
        let all: Vec<u32> = (0..8)
            .map(|_| sleeps_until_poll(&mut vigil, &mut now))
            .collect();
        assert_eq!(all, [0, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn success_resets_the_backoff() {
        let mut now = Instant::now();
        let mut vigil = BusyPoll::new(now);
        let before = (0..5)
            .map(|_| sleeps_until_poll(&mut vigil, &mut now))
            .last();
        assert_eq!(before, Some(16));
        for _ in 0..32 {
            vigil.note_sleep();
        }
        assert!(vigil.should_poll(true, now));
        assert!(vigil.should_poll(false, now));
        assert!(vigil.should_poll(true, now), "it found something");
        assert_eq!(sleeps_until_poll(&mut vigil, &mut now), 0);
        assert_eq!(sleeps_until_poll(&mut vigil, &mut now), 2);
    }
}
