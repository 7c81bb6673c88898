//! How long an acknowledgement takes on a connected channel (RFC 6298), and whether the peer is still there.
//! It promises that only packets which were sent once are measured, so that no answer is taken for another's.
//! It refuses to act: who waits, gives up or asks is decided where time passes.

use core::time::Duration;

use verbena_stream::Time;
use verbena_wire::cell::PacketSeq;

use crate::config::Config;

/// Nothing waits longer than this for a sign of life, whatever was measured.
const CEILING: Duration = Duration::from_secs(2);

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The smoothed time and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// The packet that is being measured, and when its last cell left.
    measured: Option<(PacketSeq, Time)>,
}

impl Pace {
    /// The last cell of a packet left for the first time.
    pub(super) fn sent(&mut self, packet: PacketSeq, now: Time) {
        self.measured.get_or_insert((packet, now));
    }

    /// Packets are sent again: an answer could be to either (RFC 6298 §3).
    pub(super) fn forget(&mut self) {
        self.measured = None;
    }

    /// Everything before `there` has come.
    pub(super) fn answered(&mut self, there: PacketSeq, now: Time) {
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

    /// How long the next acknowledgement may take; as configured until something was measured.
    pub(super) fn timeout(&self, config: &Config) -> Duration {
        let Some((mean, spread)) = self.smoothed else {
            return config.timeout;
        };
        let floor = config.least_timeout.min(config.timeout);
        (mean + spread * 4).max(floor).min(CEILING)
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
    fn it_follows_what_was_measured() {
        let config = Config::default();
        let mut pace = Pace::default();
        assert_eq!(pace.timeout(&config), config.timeout);
        let packet = PacketSeq::new(u32::MAX);
        pace.sent(packet, at(0));
        pace.answered(packet, at(50));
        assert_eq!(pace.timeout(&config), config.timeout, "it is not there yet");
        pace.answered(packet.next(), at(100));
        assert_eq!(pace.timeout(&config), MS(300), "100 + 4 * 50");
        // Fast ones bring it down to the floor, and no further.
        for ms in 1000..1100 {
            pace.sent(packet, at(ms));
            pace.answered(packet.next(), at(ms));
        }
        assert_eq!(pace.timeout(&config), config.least_timeout);
        // Slow ones up to the ceiling.
        for s in 2..40 {
            pace.sent(packet, at(s * 1000));
            pace.answered(packet.next(), at(s * 1000 + 100_000));
        }
        assert_eq!(pace.timeout(&config), CEILING);
    }

    #[test]
    fn what_is_sent_twice_is_not_measured() {
        let config = Config::default();
        let mut pace = Pace::default();
        pace.sent(PacketSeq::new(1), at(0));
        pace.forget();
        pace.answered(PacketSeq::new(9), at(500));
        assert_eq!(pace.timeout(&config), config.timeout);
    }
}
