//! Whether the peer of an idle connection is still there. A requester with packets outstanding learns it from their repetitions; one without has
//! nothing to repeat, and a receiver never has. After `keep_alive` without a packet of the peer it is sent one that it must acknowledge
//! ([`Requester::keep_alive`](verbena_roce::Requester::keep_alive)), again and again until `dead_after`.

use core::time::Duration;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::Mutex;

/// Packets without an answer after which a peer counts as gone, at least: this process may have been stopped for longer than any timeout.
const MIN_PROBES: u32 = 5;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing until then.
    Wait(Time),
    /// A packet is to be sent, and nothing more until then.
    Probe(Time),
    /// The peer is gone.
    Gone,
}

/// The probes of a connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// From the last packet of the peer to the first probe.
    interval: Duration,
    /// From the first probe to the end.
    limit: Duration,
    /// When the peer's last packet arrived, in nanoseconds; 0 if there was none.
    heard: AtomicU64,
    probes: Mutex<Probes>,
}

/// Probes since the peer was heard.
#[derive(Debug, Default)]
struct Probes {
    sent: u32,
    since: Option<Time>,
}

impl KeepAlive {
    /// None if `interval` is zero.
    pub(super) fn new(interval: Duration, limit: Duration) -> Option<KeepAlive> {
        (!interval.is_zero()).then(|| KeepAlive {
            interval,
            limit,
            heard: AtomicU64::new(0),
            probes: Mutex::default(),
        })
    }

    /// Packets of the peer have arrived.
    pub(super) fn handle_arrival(&self, now: Time) {
        self.heard.store(now.nanos(), Ordering::Relaxed);
    }

    /// When to check first.
    pub(super) fn first_check(&self, now: Time) -> Time {
        now + self.interval
    }

    /// Checks a connection; `is_idle` if nothing that was sent is to be answered. A peer that was never heard may not be there yet.
    pub(super) fn check(&self, is_idle: bool, now: Time) -> Verdict {
        let heard = Time::from_nanos(self.heard.load(Ordering::Relaxed));
        let mut probes = self.probes.lock();
        if heard == Time::ZERO || !is_idle || now < heard + self.interval {
            *probes = Probes::default();
            let due = heard + self.interval;
            return Verdict::Wait(if now < due { due } else { now + self.interval });
        }
        let since = *probes.since.get_or_insert(now);
        if now.since(since) >= self.limit && probes.sent >= MIN_PROBES {
            return Verdict::Gone;
        }
        probes.sent += 1;
        Verdict::Probe(now + self.limit / (2 * MIN_PROBES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000_000)
    }

    fn keep_alive() -> KeepAlive {
        KeepAlive::new(Duration::from_secs(60), Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn no_interval_is_no_probes() {
        assert!(KeepAlive::new(Duration::ZERO, Duration::from_secs(10)).is_none());
    }

    #[test]
    fn silent_peer_is_gone_after_interval_and_limit() {
        let keep_alive = keep_alive();
        assert_eq!(keep_alive.first_check(seconds(1)), seconds(61));
        keep_alive.handle_arrival(seconds(20));
        assert_eq!(
            keep_alive.check(true, seconds(61)),
            Verdict::Wait(seconds(80))
        );
        for now in 80..90 {
            let next = Verdict::Probe(seconds(now + 1));
            assert_eq!(keep_alive.check(true, seconds(now)), next);
        }
        assert_eq!(keep_alive.check(true, seconds(90)), Verdict::Gone);
    }

    #[test]
    fn answer_ends_the_probes() {
        let keep_alive = keep_alive();
        keep_alive.handle_arrival(seconds(1));
        for now in 61..70 {
            assert!(matches!(
                keep_alive.check(true, seconds(now)),
                Verdict::Probe(_)
            ));
        }
        keep_alive.handle_arrival(seconds(70));
        assert_eq!(
            keep_alive.check(true, seconds(71)),
            Verdict::Wait(seconds(130))
        );
        let next = Verdict::Probe(seconds(131));
        assert_eq!(keep_alive.check(true, seconds(130)), next, "all over again");
    }

    #[test]
    fn outstanding_requests_need_no_probe() {
        let keep_alive = keep_alive();
        keep_alive.handle_arrival(seconds(1));
        let later = Verdict::Wait(seconds(160));
        assert_eq!(keep_alive.check(false, seconds(100)), later);
    }

    #[test]
    fn peer_that_was_never_heard_is_waited_for() {
        let later = Verdict::Wait(seconds(1060));
        assert_eq!(keep_alive().check(true, seconds(1000)), later);
    }

    #[test]
    fn stopped_process_probes_before_it_gives_up() {
        let keep_alive = keep_alive();
        keep_alive.handle_arrival(seconds(1));
        assert!(matches!(
            keep_alive.check(true, seconds(61)),
            Verdict::Probe(_)
        ));
        // Stopped for an hour.
        for now in 4000..4004 {
            assert!(matches!(
                keep_alive.check(true, seconds(now)),
                Verdict::Probe(_)
            ));
        }
        assert_eq!(keep_alive.check(true, seconds(4004)), Verdict::Gone);
    }
}
