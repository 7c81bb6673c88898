//! Congestion window by CUBIC (RFC 9438) with slow start, and proportional rate reduction in recovery (RFC 6937).
//! The window grows by bytes that were acknowledged, not by acknowledgements, so that dividing them gains nothing (RFC 3465).

use core::time::Duration;
use verbena_stream::Time;

/// Segments that may be sent before the first acknowledgement (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// By how many segments one acknowledgement lets the window grow in slow start (RFC 9406, 4.2).
const SLOW_START_SEGMENTS: u64 = 8;
/// The multiplicative decrease.
const BETA: f64 = 0.7;
/// The aggressiveness, in segments per cubic second.
const SCALING: f64 = 0.4;
/// No window is larger: that of RFC 7323 is smaller.
const MAX_WINDOW: u64 = 1 << 31;

#[derive(Debug, Clone)]
pub(crate) struct Congestion {
    window: u64,
    threshold: u64,
    mss: u64,
    /// The window before the last reduction.
    plateau: f64,
    prior: f64,
    epoch: Option<Epoch>,
    recovery: Option<Reduction>,
}

/// Congestion avoidance since a reduction.
#[derive(Debug, Clone)]
struct Epoch {
    began: Time,
    /// Seconds until the plateau is reached.
    until_plateau: f64,
    /// The window of an additive increase that shares fairly with Reno.
    reno: f64,
}

/// A recovery by proportional rate reduction.
#[derive(Debug, Clone)]
struct Reduction {
    flight: u64,
    delivered: u64,
    sent: u64,
}

impl Congestion {
    pub(crate) fn new(mss: usize) -> Congestion {
        let mss = mss as u64;
        Congestion {
            window: initial(mss),
            threshold: MAX_WINDOW,
            mss,
            plateau: 0.0,
            prior: 0.0,
            epoch: None,
            recovery: None,
        }
    }

    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// Whether the window was the limit while `flight` bytes were unacknowledged (RFC 7661, 4).
    pub(crate) const fn is_limited(&self, flight: u64) -> bool {
        if self.window < self.threshold {
            2 * flight >= self.window
        } else {
            flight + 4 * self.mss >= self.window
        }
    }

    /// The segment size is known, or has changed.
    pub(crate) fn set_mss(&mut self, mss: usize, is_first: bool) {
        self.mss = mss as u64;
        if is_first {
            self.window = initial(self.mss);
        }
        self.window = self.window.max(self.mss);
    }

    /// `acked` bytes were acknowledged outside recovery, while the window was the limit.
    pub(crate) fn acked(&mut self, acked: u64, now: Time, rtt: Duration) {
        if self.window < self.threshold {
            let growth = acked.min(SLOW_START_SEGMENTS * self.mss);
            self.window = (self.window + growth).min(self.threshold.max(self.window));
        } else {
            self.avoid(acked, now, rtt);
        }
        self.window = self.window.min(MAX_WINDOW);
    }

    /// Congestion avoidance (RFC 9438, 4.2 to 4.4), in bytes.
    fn avoid(&mut self, acked: u64, now: Time, rtt: Duration) {
        let mss = self.mss as f64;
        let window = self.window as f64;
        if self.epoch.is_none() {
            self.plateau = self.plateau.max(window);
        }
        let plateau = self.plateau;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            until_plateau: ((plateau - window) / mss / SCALING).cbrt(),
            reno: window,
        });
        let cubic = |at: f64| SCALING * (at - epoch.until_plateau).powi(3) * mss + plateau;
        let time = now.since(epoch.began).as_secs_f64();
        let target = cubic(time + rtt.as_secs_f64()).clamp(window, 1.5 * window);
        let share = acked as f64 / window;
        // RFC 9438, 4.3: until the old window is reached, at the rate of Reno with this decrease.
        let alpha = if epoch.reno < self.prior {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        epoch.reno += alpha * share * mss;
        let grown = if cubic(time) < epoch.reno {
            window.max(epoch.reno)
        } else {
            window + (target - window) * share.min(1.0)
        };
        self.window = grown as u64;
    }

    /// A loss: the threshold for a flight of `flight` bytes, once for each window.
    fn reduce(&mut self, flight: u64) {
        let window = self.window as f64;
        // Fast convergence (RFC 9438, 4.7).
        self.plateau = if window < self.plateau {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.prior = window;
        self.epoch = None;
        let kept = flight.min(self.window) as f64 * BETA;
        self.threshold = (kept as u64).max(2 * self.mss);
    }

    /// Recovery begins with `flight` bytes unacknowledged.
    pub(crate) fn enter_recovery(&mut self, flight: u64) {
        self.reduce(flight);
        self.recovery = Some(Reduction {
            flight: flight.max(1),
            delivered: 0,
            sent: 0,
        });
    }

    /// In recovery `delivered` bytes were acknowledged in any way, and `pipe` bytes are in the network (RFC 6937, 3).
    pub(crate) fn recovering(&mut self, delivered: u64, pipe: u64, advances: bool) {
        let Some(prr) = self.recovery.as_mut() else {
            return;
        };
        prr.delivered = prr.delivered.saturating_add(delivered);
        let budget = if pipe > self.threshold {
            let share = u128::from(prr.delivered) * u128::from(self.threshold);
            let allowed = share.div_ceil(u128::from(prr.flight));
            u64::try_from(allowed)
                .unwrap_or(u64::MAX)
                .saturating_sub(prr.sent)
        } else {
            let conserved = prr.delivered.saturating_sub(prr.sent);
            // A slow start only where the left edge moves.
            let limit = if advances {
                conserved.max(delivered) + self.mss
            } else {
                conserved
            };
            (self.threshold - pipe).min(limit)
        };
        // The first retransmission is not delayed.
        let budget = if prr.sent == 0 {
            budget.max(self.mss)
        } else {
            budget
        };
        self.window = pipe + budget;
    }

    /// Bytes were sent.
    pub(crate) fn sent(&mut self, len: u64) {
        if let Some(prr) = self.recovery.as_mut() {
            prr.sent = prr.sent.saturating_add(len);
        }
    }

    /// All that was unacknowledged when recovery began is acknowledged.
    pub(crate) fn exit_recovery(&mut self) {
        if self.recovery.take().is_some() {
            self.window = self.threshold;
        }
    }

    /// A retransmission timeout; `is_first` if none happened since data was acknowledged (RFC 5681, 3.1). One segment is sent, whatever
    /// is still believed to be in the network.
    pub(crate) fn timeout(&mut self, flight: u64, pipe: u64, is_first: bool) {
        if is_first && self.recovery.is_none() {
            self.reduce(flight);
        }
        self.recovery = None;
        self.epoch = None;
        self.window = pipe + self.mss;
    }

    /// One reduction without recovery: a tail loss probe has repaired the loss (RFC 8985, 7.4.2).
    pub(crate) fn repaired(&mut self, flight: u64) {
        self.reduce(flight);
        self.window = self.threshold;
    }

    /// Nothing was sent for a retransmission timeout (RFC 5681, 4.1).
    pub(crate) fn idle(&mut self) {
        self.epoch = None;
        self.window = self.window.min(initial(self.mss));
    }
}

fn initial(mss: u64) -> u64 {
    INITIAL_SEGMENTS * mss
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1000;
    const RTT: Duration = Duration::from_millis(10);

    fn round(congestion: &mut Congestion, now: Time) {
        let window = congestion.window();
        for _ in 0..window / 1000 {
            congestion.acked(1000, now, RTT);
        }
    }

    #[test]
    fn slow_start_doubles_in_a_round() {
        let mut congestion = Congestion::new(MSS);
        round(&mut congestion, Time::ZERO);
        assert_eq!(congestion.window(), 20_000);
    }

    #[test]
    fn divided_acknowledgements_gain_nothing() {
        let mut whole = Congestion::new(MSS);
        whole.acked(1000, Time::ZERO, RTT);
        let mut divided = Congestion::new(MSS);
        for _ in 0..1000 {
            divided.acked(1, Time::ZERO, RTT);
        }
        assert_eq!(whole.window(), divided.window());
    }

    #[test]
    fn window_returns_to_its_plateau() {
        let mut congestion = Congestion::new(MSS);
        while congestion.window() < 100_000 {
            round(&mut congestion, Time::ZERO);
        }
        let before = congestion.window();
        congestion.enter_recovery(before);
        congestion.exit_recovery();
        assert_eq!(congestion.window(), (before as f64 * BETA) as u64);
        let mut now = Time::ZERO;
        let mut rounds = 0;
        while congestion.window() < before {
            now = now + RTT;
            round(&mut congestion, now);
            rounds += 1;
            assert!(rounds < 1000, "it does not grow");
        }
        // About the cube root of 0.3 * 160 / 0.4 seconds, or sooner by the Reno estimate.
        assert!(rounds > 20, "{rounds}");
    }

    #[test]
    fn reduction_is_spread_over_the_recovery() {
        let mut congestion = Congestion::new(MSS);
        congestion.window = 100_000;
        congestion.enter_recovery(100_000);
        let mut pipe = 99_000;
        let mut sent = 0;
        while pipe > 70_000 {
            pipe -= 1000;
            congestion.recovering(1000, pipe, false);
            while pipe + 1000 <= congestion.window() {
                pipe += 1000;
                sent += 1000;
                congestion.sent(1000);
            }
        }
        // Seven are sent for ten that arrive.
        assert!((60_000..80_000).contains(&sent), "{sent}");
    }

    #[test]
    fn timeout_leaves_one_segment() {
        let mut congestion = Congestion::new(MSS);
        congestion.timeout(10_000, 0, true);
        assert_eq!((congestion.window(), congestion.threshold), (1000, 7000));
        congestion.timeout(1000, 0, false);
        assert_eq!((congestion.window(), congestion.threshold), (1000, 7000));
    }
}
