//! The acknowledgement timeout of a connected channel (RFC 6298). Only packets that were sent once are measured, so that an answer is
//! not attributed to the wrong transmission.

use core::time::Duration;

use verbena_split_wire::cell::PacketSeq;
use verbena_stream::Time;

use crate::config::Config;

/// Upper limit of the measured timeout, before the doublings of retries.
const MAX_TIMEOUT: Duration = Duration::from_secs(2);

/// The measurements so far.
#[derive(Debug, Default)]
pub(super) struct RttEstimator {
    /// The smoothed round-trip time and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// The packet that is being measured, and when its last cell was sent.
    measured: Option<(PacketSeq, Time)>,
}

impl RttEstimator {
    /// The last cell of a packet was sent for the first time.
    pub(super) fn on_sent(&mut self, packet: PacketSeq, now: Time) {
        self.measured.get_or_insert((packet, now));
    }

    /// Packets are retransmitted: an answer could be to either transmission (RFC 6298 §3).
    pub(super) fn discard_sample(&mut self) {
        self.measured = None;
    }

    /// Everything before `there` is acknowledged.
    pub(super) fn on_ack(&mut self, there: PacketSeq, now: Time) {
        let is_there = |(packet, _): &mut (PacketSeq, Time)| packet.is_before(there);
        let Some((_, sent)) = self.measured.take_if(is_there) else {
            return;
        };
        let took = now.since(sent);
        // RFC 6298 §2.2 and §2.3: alpha is an eighth, beta a quarter.
        self.smoothed = Some(match self.smoothed {
            None => (took, took / 2),
            Some((mean, spread)) => (
                mean - mean / 8 + took / 8,
                spread - spread / 4 + mean.abs_diff(took) / 4,
            ),
        });
    }

    /// The timeout of the next acknowledgement; the configured one until there is a measurement.
    pub(super) fn timeout(&self, config: &Config) -> Duration {
        let Some((mean, spread)) = self.smoothed else {
            return config.timeout;
        };
        let floor = config.least_timeout.min(config.timeout);
        (mean + spread * 4).max(floor).min(MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(ms: u64) -> Time {
        Time::ZERO + MS(ms)
    }

    #[test]
    fn timeout_follows_measured_round_trips() {
        let config = Config::default();
        let mut pace = RttEstimator::default();
        assert_eq!(pace.timeout(&config), config.timeout);
        let packet = PacketSeq::new(u32::MAX);
        pace.on_sent(packet, at(0));
        pace.on_ack(packet, at(50));
        assert_eq!(pace.timeout(&config), config.timeout, "it is not there yet");
        pace.on_ack(packet.next(), at(100));
        assert_eq!(pace.timeout(&config), MS(300), "100 + 4 * 50");
        // Short round trips lower it to the limit.
        for ms in 1000..1100 {
            pace.on_sent(packet, at(ms));
            pace.on_ack(packet.next(), at(ms));
        }
        assert_eq!(pace.timeout(&config), config.least_timeout);
        // Long ones raise it to the upper limit.
        for s in 2..40 {
            pace.on_sent(packet, at(s * 1000));
            pace.on_ack(packet.next(), at(s * 1000 + 100_000));
        }
        assert_eq!(pace.timeout(&config), MAX_TIMEOUT);
    }

    #[test]
    fn retransmitted_packets_are_not_measured() {
        let config = Config::default();
        let mut pace = RttEstimator::default();
        pace.on_sent(PacketSeq::new(1), at(0));
        pace.discard_sample();
        pace.on_ack(PacketSeq::new(9), at(500));
        assert_eq!(pace.timeout(&config), config.timeout);
    }
}
