//! Round-trip time and retransmission timeout (RFC 6298), and the least round-trip time of the last minutes.
//! The timeout is between the configured least value and [`MAX_RTO`]; samples of retransmitted segments are not given (Karn's rule).

use core::time::Duration;
use verbena_stream::Time;

/// The longest retransmission timeout.
pub const MAX_RTO: Duration = Duration::from_secs(60);
/// The timeout before the first sample (RFC 6298, 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// How long a least round-trip time counts; between one and two of these.
const MIN_RTT_LIFE: Duration = Duration::from_secs(150);

#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
    /// The least value since `since`, which becomes `least` at the end of its life.
    next_least: Option<Duration>,
    since: Time,
    least_rto: Duration,
    backoff: u32,
}

impl Rtt {
    pub(crate) fn new(least_rto: Duration, now: Time) -> Rtt {
        Rtt {
            smoothed: None,
            variation: Duration::ZERO,
            least: None,
            next_least: None,
            since: now,
            least_rto,
            backoff: 0,
        }
    }

    pub(crate) fn sample(&mut self, rtt: Duration, now: Time) {
        let rtt = rtt.min(MAX_RTO);
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
        if now.since(self.since) > MIN_RTT_LIFE {
            self.least = self.next_least.take();
            self.since = now;
        }
        let least = |value: Option<Duration>| Some(value.map_or(rtt, |least| least.min(rtt)));
        self.least = least(self.least);
        self.next_least = least(self.next_least);
    }

    pub(crate) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(crate) const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The timeout, backed off.
    pub(crate) fn rto(&self) -> Duration {
        let plain = match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) => (smoothed + self.variation * 4).max(self.least_rto),
        };
        plain.saturating_mul(1 << self.backoff.min(16)).min(MAX_RTO)
    }

    /// Doubles the timeout.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    pub(crate) const fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// New data was acknowledged.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn timeout_follows_the_samples() {
        let mut rtt = Rtt::new(200 * MS, Time::ZERO);
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(100 * MS, Time::ZERO);
        assert_eq!(rtt.rto(), 300 * MS);
        for _ in 0..100 {
            rtt.sample(100 * MS, Time::ZERO);
        }
        assert_eq!(rtt.rto(), 200 * MS);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), 800 * MS);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), 200 * MS);
    }

    #[test]
    fn least_value_expires() {
        let mut rtt = Rtt::new(MS, Time::ZERO);
        rtt.sample(MS, Time::ZERO);
        for second in 0..400 {
            rtt.sample(9 * MS, Time::ZERO + Duration::from_secs(second));
        }
        assert_eq!(rtt.least(), Some(9 * MS));
    }
}
