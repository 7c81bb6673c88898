//! When a requester repeats packets that were not answered, and when it gives up.
//! Two clocks run while packets are unacknowledged. The program's timeout counts against its retries. Long before it, from
//! the measured round trip on, the packets are repeated without being counted, so that the loss of a last packet does not cost the
//! whole timeout.

use core::time::Duration;

use verbena_stream::Time;
use verbena_wire::roce::Psn;

use crate::settings::Settings;

/// The shortest time before packets are repeated.
const MIN_PROBE: Duration = Duration::from_millis(5);
/// The same before a round trip was measured.
const FIRST_PROBE: Duration = Duration::from_millis(50);
/// The longest.
const MAX_PROBE: Duration = Duration::from_secs(2);

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Repeat,
    GiveUp,
}

/// The clocks of a requester.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    timeout: Option<Duration>,
    retry_count: u8,
    rnr_retry: u8,
    /// Retries without progress.
    retries: u8,
    rnr_retries: u8,
    /// Uncounted repetitions without progress.
    probes: u32,
    /// When packets became unacknowledged, or the last progress was made; `None` while all are acknowledged.
    since: Option<Time>,
    /// The end of the wait for a receiver.
    wait_end: Option<Time>,
    round_trip: Option<Duration>,
    /// A packet whose acknowledgement is timed.
    timed: Option<(Psn, Time)>,
}

impl Retry {
    pub(super) fn new(settings: &Settings) -> Retry {
        Retry {
            timeout: settings.timeout,
            retry_count: settings.retry_count,
            rnr_retry: settings.rnr_retry,
            retries: 0,
            rnr_retries: 0,
            probes: 0,
            since: None,
            wait_end: None,
            round_trip: None,
            timed: None,
        }
    }

    /// A packet was sent for the first time.
    pub(super) fn handle_sent(&mut self, psn: Psn, was_idle: bool, now: Time) {
        if was_idle || self.since.is_none() {
            self.since = Some(now);
        }
        self.timed.get_or_insert((psn, now));
    }

    /// Packets were acknowledged for the first time.
    pub(super) fn handle_progress(&mut self, acked: Psn, is_idle: bool, now: Time) {
        (self.retries, self.rnr_retries, self.probes) = (0, 0, 0);
        self.since = (!is_idle).then_some(now);
        if let Some((psn, at)) = self.timed
            && psn.is_before(acked)
        {
            let sample = now.since(at);
            self.round_trip = Some(match self.round_trip {
                Some(smooth) => (smooth * 7 + sample) / 8,
                None => sample,
            });
            self.timed = None;
        }
    }

    /// The peer had no receive.
    pub(super) fn handle_rnr(&mut self, wait: Duration, now: Time) -> Verdict {
        if self.rnr_retry != Settings::RNR_FOREVER {
            if self.rnr_retries >= self.rnr_retry {
                return Verdict::GiveUp;
            }
            self.rnr_retries += 1;
        }
        // The peer answers: losses before this one do not add up with later ones, however long it has no receive.
        (self.retries, self.probes) = (0, 0);
        self.timed = None;
        self.wait_end = Some(now + wait);
        Verdict::Repeat
    }

    /// Retries that are left while the peer has no receive; `None` for no limit.
    pub(super) fn rnr_retries_left(&self) -> Option<u8> {
        let is_limited = self.rnr_retry != Settings::RNR_FOREVER;
        is_limited.then(|| self.rnr_retry.saturating_sub(self.rnr_retries))
    }

    pub(super) fn since(&self) -> Option<Time> {
        self.since
    }

    pub(super) fn wait_end(&self) -> Option<Time> {
        self.wait_end
    }

    /// The wait is over; `is_idle` if everything was acknowledged meanwhile.
    pub(super) fn handle_wait_over(&mut self, is_idle: bool, now: Time) {
        self.wait_end = None;
        self.since = (!is_idle).then_some(now);
    }

    /// A packet was lost: packets are repeated, which counts as a retry until there is progress.
    pub(super) fn handle_loss(&mut self, now: Time) -> Verdict {
        // A repeated packet cannot be timed: its acknowledgement may be that of the first time.
        self.timed = None;
        self.since = Some(now);
        self.count_retry()
    }

    fn count_retry(&mut self) -> Verdict {
        if self.retries >= self.retry_count {
            return Verdict::GiveUp;
        }
        self.retries += 1;
        Verdict::Repeat
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let since = self.since?;
        let probe = since + self.probe_interval();
        Some(match self.timeout_end() {
            Some(end) => end.min(probe),
            None => probe,
        })
    }

    fn timeout_end(&self) -> Option<Time> {
        Some(self.since? + self.timeout?)
    }

    /// The time from `since` to the next uncounted repetition.
    fn probe_interval(&self) -> Duration {
        let first = match self.round_trip {
            Some(smooth) => (smooth * 4).max(MIN_PROBE),
            None => FIRST_PROBE,
        };
        // Doubled each time up to the longest, and then that long after the last.
        let (mut interval, mut left) = (first.min(MAX_PROBE), self.probes);
        while left > 0 && interval < MAX_PROBE {
            interval = (interval * 2).min(MAX_PROBE);
            left -= 1;
        }
        interval.saturating_add(MAX_PROBE.saturating_mul(left))
    }

    /// The deadline has passed.
    pub(super) fn handle_silence(&mut self, now: Time) -> Verdict {
        self.timed = None;
        if self.timeout_end().is_some_and(|end| now >= end) {
            self.since = Some(now);
            return self.count_retry();
        }
        self.probes += 1;
        Verdict::Repeat
    }
}
