//! Looking again before sleeping: while frames stream, the next one comes sooner than waking takes.
//! It promises to give way to whoever wants the processor, and not to go on where it is in vain: then it is tried again after more
//! and more sleeps. It refuses to look by itself.

use std::thread::yield_now;
use std::time::{Duration, Instant};

use verbena::low::Habit;

/// How long a driver looks again after something came.
const LOOK: Duration = Duration::from_micros(500);

/// Whether a driver looks again.
#[derive(Debug)]
pub(crate) struct Vigil {
    /// When something came last.
    came: Instant,
    /// It looked again since.
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

    /// A turn is over, and was of use or not; true if another one follows, false if it is time to sleep.
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

    /// It slept.
    pub(crate) fn slept(&mut self) {
        self.habit.pass();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps until it looks again, which must be in vain.
    fn sleeps(vigil: &mut Vigil, now: &mut Instant) -> u32 {
        let mut sleeps = 0;
        loop {
            // Each time something wakes it.
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
    fn it_looks_for_a_while_and_then_sleeps() {
        let now = Instant::now();
        let mut vigil = Vigil::new(now);
        assert!(vigil.goes_on(true, now));
        assert!(vigil.goes_on(false, now + LOOK / 2));
        assert!(vigil.goes_on(true, now + LOOK / 2), "it found something");
        assert!(vigil.goes_on(false, now + LOOK), "and looks anew");
        assert!(!vigil.goes_on(false, now + LOOK * 2));
    }

    #[test]
    fn in_vain_is_tried_ever_more_rarely() {
        let mut now = Instant::now();
        let mut vigil = Vigil::new(now);
        let all: Vec<u32> = (0..8).map(|_| sleeps(&mut vigil, &mut now)).collect();
        assert_eq!(all, [0, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn once_it_paid_it_is_trusted_again() {
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
