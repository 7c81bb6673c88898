//! Busy polling before a sleep: while frames arrive in a stream, the next one comes sooner than a wakeup takes. Between polls it yields
//! the processor, and polling that finds nothing is tried again only after a number of sleeps that doubles, up to a limit ([`Habit`]).

use std::thread::yield_now;
use std::time::{Duration, Instant};

use verbena::low::Habit;

/// How long a driver polls after the last arrival.
const LOOK: Duration = Duration::from_micros(500);

/// Decides whether a driver polls again or sleeps.
#[derive(Debug)]
pub(crate) struct Vigil {
    /// Time of the last arrival.
    came: Instant,
    /// It has polled without result since.
    looks: bool,
    habit: Habit,
}

impl Vigil {
    pub(crate) fn new(now: Instant) -> Vigil {
        Vigil {
            came: now,
            looks: false,
            habit: Habit::default(),
        }
    }

    /// Called after each turn with whether it found anything; true: take another turn, false: sleep.
    pub(crate) fn goes_on(&mut self, came: bool, now: Instant) -> bool {
        if came {
            if core::mem::take(&mut self.looks) {
                self.habit.learn(true);
            }
            self.came = now;
            return true;
        }
        if !self.habit.is_on() {
            return false;
        }
        if now.saturating_duration_since(self.came) < LOOK {
            self.looks = true;
            yield_now();
            return true;
        }
        self.looks = false;
        self.habit.learn(false);
        false
    }

    /// Called after a sleep.
    pub(crate) fn slept(&mut self) {
        self.habit.pass();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of sleeps until it polls again, without result.
    fn sleeps(vigil: &mut Vigil, now: &mut Instant) -> u32 {
        let mut sleeps = 0;
        loop {
            // An arrival after each wakeup.
            assert!(vigil.goes_on(true, *now));
            let looks = vigil.goes_on(false, *now);
            if looks {
                *now += LOOK;
                assert!(!vigil.goes_on(false, *now));
                return sleeps;
            }
            *now += LOOK * 2;
            vigil.slept();
            sleeps += 1;
        }
    }

    #[test]
    fn polling_ends_after_the_interval() {
        let now = Instant::now();
        let mut vigil = Vigil::new(now);
        assert!(vigil.goes_on(true, now));
        assert!(vigil.goes_on(false, now + LOOK / 2));
        assert!(vigil.goes_on(true, now + LOOK / 2), "it found something");
        assert!(vigil.goes_on(false, now + LOOK), "and looks anew");
        assert!(!vigil.goes_on(false, now + LOOK * 2));
    }

    #[test]
    fn backoff_doubles_after_each_failure() {
        let mut now = Instant::now();
        let mut vigil = Vigil::new(now);
        let all: Vec<u32> = (0..8).map(|_| sleeps(&mut vigil, &mut now)).collect();
        assert_eq!(all, [0, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn success_resets_the_backoff() {
        let mut now = Instant::now();
        let mut vigil = Vigil::new(now);
        let before = (0..5).map(|_| sleeps(&mut vigil, &mut now)).last();
        assert_eq!(before, Some(16));
        for _ in 0..32 {
            vigil.slept();
        }
        assert!(vigil.goes_on(true, now));
        assert!(vigil.goes_on(false, now));
        assert!(vigil.goes_on(true, now), "it found something");
        assert_eq!(sleeps(&mut vigil, &mut now), 0);
        assert_eq!(sleeps(&mut vigil, &mut now), 2);
    }
}
