//! Time in which we were there: a pause in which nobody looked counts for half a second at most.
//! It promises that a process which was held up does not take its own absence for somebody else's.
//! It refuses to know what is waited for.

use std::time::{Duration, Instant};

/// Drivers look more often, if the system lets them.
const PAUSE: Duration = Duration::from_millis(500);

/// Measures since it was made, or [begun](Awake::begin) again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awake {
    looked: Instant,
    sum: Duration,
}

impl Awake {
    pub(crate) fn new(now: Instant) -> Awake {
        Awake {
            looked: now,
            sum: Duration::ZERO,
        }
    }

    /// From the beginning.
    pub(crate) fn begin(&mut self, now: Instant) {
        *self = Awake::new(now);
    }

    /// Somebody looks: how long it is now.
    pub(crate) fn look(&mut self, now: Instant) -> Duration {
        let pause = now.saturating_duration_since(self.looked);
        self.sum += pause.min(PAUSE);
        self.looked = now;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_counts_little() {
        let mut now = Instant::now();
        let mut awake = Awake::new(now);
        now += Duration::from_secs(100);
        assert_eq!(awake.look(now), PAUSE);
        for _ in 0..10 {
            now += Duration::from_millis(100);
            awake.look(now);
        }
        assert_eq!(awake.look(now), PAUSE + Duration::from_secs(1));
        awake.begin(now);
        assert_eq!(awake.look(now), Duration::ZERO);
    }
}
