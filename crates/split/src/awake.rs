//! A timer for timeouts of a peer: time between two readings counts at most [`PAUSE`]. A process that was suspended or not scheduled
//! therefore does not take its own absence for the peer's silence.

use std::time::{Duration, Instant};

/// Drivers read the timer more often than this if they are scheduled.
const PAUSE: Duration = Duration::from_millis(500);

/// Time since it was created or [restarted](Awake::begin).
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

    /// Restarts at zero.
    pub(crate) fn begin(&mut self, now: Instant) {
        *self = Awake::new(now);
    }

    /// Adds the time since the last reading; returns the sum.
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
    fn time_between_readings_is_capped() {
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
