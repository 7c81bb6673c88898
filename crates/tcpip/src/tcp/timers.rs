//! The timers of a connection as deadlines, and what happens when one has passed.
//! Timers that depend on there being nothing else to send are set when [`Connection::poll_transmit`] has returned everything.

use core::time::Duration;
use verbena_stream::Time;

use super::rtt::MAX_RTO;
use super::{CloseReason, Connection, Recovery, State};

/// How long a tail loss probe waits before the first round trip was measured (RFC 8985, 7.2).
const INITIAL_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a peer may delay the acknowledgement of a single segment (RFC 8985, 7.2).
const PEER_DELAY: Duration = Duration::from_millis(200);
/// A clock may be coarse: added to the time of a tail loss probe.
const SLACK: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    /// Retransmission, of the SYN too.
    pub(crate) rto: Option<Time>,
    /// Tail loss probe.
    pub(crate) tail: Option<Time>,
    /// A segment that may only be late is lost then.
    pub(crate) reordering: Option<Time>,
    /// Probe of a window that is closed, or too small for a message.
    pub(crate) window: Option<Time>,
    pub(crate) delayed_ack: Option<Time>,
    pub(crate) keep_alive: Option<Time>,
    /// The end of `TimeWait`, or of the wait in `FinWait2`.
    pub(crate) end: Option<Time>,
    /// Probes of the window without data sent between.
    pub(crate) window_count: u32,
    /// Probes of the idle connection without an answer.
    pub(crate) probes_sent: u32,
    pub(crate) tail_due: bool,
    pub(crate) window_due: bool,
    pub(crate) probe_due: bool,
}

impl Timers {
    fn earliest(&self) -> Option<Time> {
        let all = [
            self.rto,
            self.tail,
            self.reordering,
            self.window,
            self.delayed_ack,
            self.keep_alive,
            self.end,
        ];
        all.into_iter().flatten().min()
    }
}

/// Takes a deadline that has passed.
fn expired(timer: &mut Option<Time>, now: Time) -> bool {
    timer.take_if(|at| *at <= now).is_some()
}

impl Connection {
    /// When [`Connection::handle_timeout`] is to be called. An idle connection without keep-alive has no deadline.
    pub fn deadline(&self) -> Option<Time> {
        self.timers.earliest()
    }

    /// Deadlines have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if expired(&mut self.timers.end, now) {
            self.end(CloseReason::Finished);
            return;
        }
        if expired(&mut self.timers.delayed_ack, now) {
            self.owed.now = true;
        }
        if expired(&mut self.timers.reordering, now) {
            let flight = self.board.flight();
            let in_recovery = self.recovery != Recovery::None;
            self.timers.reordering = self.board.detect(now, &self.rtt, in_recovery);
            self.enter_recovery_if_lost(flight);
            if let Recovery::Fast(_) = self.recovery {
                let pipe = self.board.pipe();
                self.congestion.recovering(0, pipe, false);
            }
        }
        if expired(&mut self.timers.tail, now) && !self.excludes_tail_probe() {
            self.timers.tail_due = true;
            self.arm_rto(now);
        }
        if expired(&mut self.timers.rto, now) {
            self.time_out(now);
        }
        if expired(&mut self.timers.window, now) {
            self.probe_window(now);
        }
        if expired(&mut self.timers.keep_alive, now) {
            self.probe_idle();
        }
    }

    fn time_out(&mut self, now: Time) {
        if !self.handshake.is_done {
            self.time_out_syn(now);
            return;
        }
        if self.board.is_empty() {
            return;
        }
        // A closed window is no failure while the peer answers (RFC 9293, 3.8.6.1).
        let is_open = self.peer.right > self.board.una();
        let since = if is_open {
            self.progress_at
        } else {
            self.progress_at.max(self.heard_at)
        };
        if now.since(since) >= self.config.user_timeout {
            self.give_up();
            return;
        }
        self.counters.timeouts += 1;
        if self.path.timed_out(now) {
            self.path_changed();
        }
        let is_first = !self.rtt.is_backed_off();
        self.board.time_out(now, &self.rtt);
        let (flight, pipe) = (self.board.flight(), self.board.pipe());
        self.congestion.timeout(flight, pipe, is_first);
        self.recovery = Recovery::Timeout(self.board.next());
        self.tail_probe = None;
        self.timers.tail = None;
        self.timers.tail_due = false;
        self.timers.reordering = None;
        self.duplicate_acks = 0;
        self.rtt.back_off();
        self.arm_rto(now);
    }

    fn time_out_syn(&mut self, now: Time) {
        if now.since(self.handshake.began) >= self.config.connect_timeout {
            self.give_up();
            return;
        }
        self.counters.timeouts += 1;
        self.rtt.back_off();
        self.handshake.is_due = true;
        self.arm_rto(now);
    }

    /// The peer is dead, or thinks that this side is: it is told, in case it is not.
    fn give_up(&mut self) {
        self.abort();
        self.reason = Some(CloseReason::TimedOut);
    }

    fn probe_window(&mut self, now: Time) {
        if now.since(self.progress_at.max(self.heard_at)) >= self.config.user_timeout {
            self.give_up();
            return;
        }
        self.timers.window_due = true;
        self.timers.window_count = (self.timers.window_count + 1).min(16);
    }

    fn probe_idle(&mut self) {
        let Some(keep_alive) = self.config.keep_alive else {
            return;
        };
        if self.timers.probes_sent >= keep_alive.probes {
            self.give_up();
            return;
        }
        self.timers.probes_sent += 1;
        self.timers.probe_due = true;
    }

    /// The segments that are due cannot be sent now: they are tried again after a timeout.
    pub fn retry_later(&mut self, now: Time) {
        self.arm_rto(now);
    }

    pub(super) fn arm_rto(&mut self, now: Time) {
        self.timers.rto = Some(now + self.rtt.rto());
    }

    /// RFC 8985, 7.2.
    pub(super) fn arm_tail_probe(&mut self, now: Time) {
        if self.excludes_tail_probe() {
            self.timers.tail = None;
            return;
        }
        let mut wait = match self.rtt.smoothed() {
            None => INITIAL_PROBE_TIMEOUT,
            Some(rtt) => rtt * 2 + SLACK,
        };
        if self.board.len() == 1 {
            wait += PEER_DELAY;
        }
        let at = now + wait;
        self.timers.tail = Some(self.timers.rto.map_or(at, |rto| at.min(rto)));
    }

    /// Nothing can be sent now: sets the timers that end such a wait.
    pub(super) fn arm_idle_timers(&mut self, now: Time) {
        if self.board.is_empty() && self.is_waiting() {
            let interval = self.rtt.rto().saturating_mul(1 << self.timers.window_count);
            let at = now + interval.min(MAX_RTO);
            if self.timers.window.is_none() && self.timers.window_count == 0 {
                // The wait begins, however long the connection was idle.
                self.progress_at = now;
            }
            self.timers.window.get_or_insert(at);
        } else {
            self.timers.window = None;
        }
        if let Some(keep_alive) = self.config.keep_alive
            && self.state.is_synchronized()
            && self.state != State::TimeWait
            && self.board.is_empty()
            && !self.is_waiting()
        {
            let wait = if self.timers.probes_sent == 0 {
                self.heard_at + keep_alive.idle
            } else {
                now + keep_alive.interval
            };
            if self.timers.probes_sent == 0 {
                self.timers.keep_alive = Some(wait);
            } else {
                self.timers.keep_alive.get_or_insert(wait);
            }
        } else {
            self.timers.keep_alive = None;
        }
        if self.path.expire(now) {
            self.path_changed();
        }
    }
}
