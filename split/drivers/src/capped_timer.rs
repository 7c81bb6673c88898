//! A timer for timeouts of a peer: time between two readings counts at most [`MAX_STEP`]. A process that was suspended or not scheduled
//! therefore does not take its own absence for the peer's silence.

use std::time::{Duration, Instant};

/// Drivers read the timer more often than this if they are scheduled.
const MAX_STEP: Duration = Duration::from_millis(500);

/// Time since it was created or [restarted](CappedTimer::restart).
#[derive(Debug, Clone, Copy)]
pub(crate) struct CappedTimer {
    last_read: Instant,
    sum: Duration,
}

impl CappedTimer {
    pub(crate) fn new(now: Instant) -> CappedTimer {
        CappedTimer {
            last_read: now,
            sum: Duration::ZERO,
        }
    }

    /// Restarts at zero.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = CappedTimer::new(now);
    }

    /// Adds the time since the last reading; returns the sum.
    pub(crate) fn advance(&mut self, now: Instant) -> Duration {
        let pause = now.saturating_duration_since(self.last_read);
        self.sum += pause.min(MAX_STEP);
        self.last_read = now;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_readings_is_capped() {
        let mut now = Instant::now();
        let mut awake = CappedTimer::new(now);
        now += Duration::from_secs(100);
        assert_eq!(awake.advance(now), MAX_STEP);
        for _ in 0..10 {
            now += Duration::from_millis(100);
            awake.advance(now);
        }
        assert_eq!(awake.advance(now), MAX_STEP + Duration::from_secs(1));
        awake.restart(now);
        assert_eq!(awake.advance(now), Duration::ZERO);
    }
}
