//! Loss of the connection and session recovery (RFC 7143 §7.1.4.4), the only recovery of error recovery level 0. If the target cannot be
//! reached within [`Options::reconnect`](super::Options::reconnect), all commands end as lost. Only commands marked as safe are repeated.
//! Reconnecting does not block.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena_iscsi::login::LoginOutcome;

use super::Session;
use super::dial::Dial;
use super::link::Link;
use super::outcome::Outcome;
use super::sleep_poll::sleep_on_fds;
use crate::error::Error;

/// Backoff of attempts to connect, initial and maximal: it doubles.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Times that a command is sent again after it, or its connection, was lost.
const MAX_RESENDS: u32 = 3;

/// A lost connection.
pub(super) struct Lost {
    since: Instant,
    /// The current attempt.
    dial: Option<Dial>,
    next: Instant,
    backoff: Duration,
    why: String,
    /// Reconnecting was given up.
    given_up: bool,
}

impl Session {
    /// Why the session has ended, if it has.
    pub(super) fn gave_up(&self) -> Option<&str> {
        let lost = self.lost.as_ref().filter(|lost| lost.given_up)?;
        Some(&lost.why)
    }

    /// Closes the connection, for this reason; its commands are reported as news.
    pub(super) fn close_link(&mut self, why: &str) {
        if let Some(link) = &mut self.link {
            link.close(why);
        }
    }

    /// The connection has ended.
    pub(super) fn handle_link_end(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            self.transferred = self.transferred.plus(link.transferred());
        }
        self.control.reset();
        self.abort = None;
        self.target_logout = None;
        // The link has reported all its commands; this catches any that it did not, which would otherwise wait forever.
        for number in self.tasks.numbers() {
            if self.tasks.get(number).is_some_and(|task| task.sent) {
                self.handle_lost_command(number, why);
            }
        }
        let now = Instant::now();
        let brief = now.duration_since(self.connected_at) < BACKOFF.1;
        self.short_connections = if brief { self.short_connections + 1 } else { 0 };
        // Reconnect at once after the first loss; delay if connections are repeatedly lost soon after login.
        let pause = (BACKOFF.0 * (1 << self.short_connections.min(8))).min(BACKOFF.1);
        let wait = if self.short_connections > 1 {
            pause
        } else {
            Duration::ZERO
        };
        // RFC 7143 §13.15: the target may require Time2Wait before the login that replaces the session. It is limited to the time for which we
        // try to reconnect.
        let agreed = Duration::from_secs(self.settled.time2wait.into());
        let agreed = agreed.min(self.options.reconnect);
        let not_before = self.not_before.take();
        let next = not_before.unwrap_or(now + agreed).max(now + wait);
        self.lost.get_or_insert_with(|| Lost {
            since: now,
            dial: None,
            next,
            backoff: BACKOFF.0,
            why: why.to_owned(),
            given_up: false,
        });
    }

    /// A command that was sent has no response and will have none.
    pub(super) fn handle_lost_command(&mut self, number: u32, why: &str) {
        let Some(task) = self.tasks.get_mut(number) else {
            return;
        };
        task.sent = false;
        task.cancelled = None;
        task.losses += 1;
        if task.cancel_requested {
            self.finish(number, Outcome::Cancelled);
        } else if task.command.idempotent && task.losses <= MAX_RESENDS && !self.control.logging_out
        {
            task.deadline = Instant::now() + self.options.command;
            self.ready.push_back(number);
            self.settle_abort(number);
        } else {
            self.finish(number, Outcome::Lost(why.to_owned()));
        }
    }

    /// Checks everything that depends on time.
    pub(super) fn tick(&mut self, now: Instant) {
        let due = |(when, _): &(Instant, u32)| *when <= now;
        while let Some(at) = self.later.iter().position(due) {
            let (_, number) = self.later.swap_remove(at);
            self.ready.push_back(number);
        }
        if self.link.is_some() {
            self.check_link(now);
        } else if !self.control.logging_out {
            self.dial_again(now);
        }
    }

    /// Checks an established connection.
    fn check_link(&mut self, now: Instant) {
        if let Some(why) = self.link.as_ref().and_then(|link| link.violation()) {
            return self.close_link(&why);
        }
        self.check_aborts(now);
        self.check_logout(now);
        let silence = self.options.silence;
        match self.control.ping {
            Some((_, since)) if now.duration_since(since) > silence => {
                self.close_link(&format!("the target has been silent for {silence:?}"));
            }
            None if now.duration_since(self.last_received) > silence => {
                // If it cannot be sent, the link has ended and reports that.
                let _ = self.send_ping();
            }
            _ => {}
        }
    }

    /// Sleeps without a link.
    pub(super) fn sleep_unlinked(
        &mut self,
        beside: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        match self.lost.as_mut().and_then(|lost| lost.dial.as_mut()) {
            Some(dial) => dial.sleep(beside, timeout),
            None => sleep_on_fds(beside, None, timeout),
        }
    }

    /// Starts an attempt to connect when it is due.
    fn dial_again(&mut self, now: Instant) {
        let Some(lost) = self.lost.as_mut().filter(|lost| !lost.given_up) else {
            return;
        };
        if lost.dial.is_some() || now < lost.next {
            return;
        }
        let (device, pd) = (&self.device, &self.pd);
        match Dial::new(device, pd, &self.address, &self.options, self.isid) {
            Ok(dial) => lost.dial = Some(dial),
            Err(error) => self.handle_dial_error(&error),
        }
    }

    /// Advances an attempt to connect, without waiting.
    pub(super) fn poll_dial(&mut self) {
        let Some(dial) = self.lost.as_mut().and_then(|lost| lost.dial.as_mut()) else {
            return;
        };
        match dial.poll() {
            Ok(None) => {}
            Ok(Some((link, settled))) => self.handle_reconnect(link, settled),
            Err(error) => self.handle_dial_error(&error),
        }
    }

    fn handle_reconnect(&mut self, link: Box<dyn Link>, settled: LoginOutcome) {
        (self.link, self.settled) = (Some(link), settled);
        self.lost = None;
        self.last_received = Instant::now();
        self.connected_at = self.last_received;
        let deadline = self.last_received + self.options.command;
        for number in self.tasks.numbers() {
            if let Some(task) = self.tasks.get_mut(number) {
                task.deadline = deadline;
            }
        }
    }

    /// An attempt failed.
    fn handle_dial_error(&mut self, error: &Error) {
        let Some(lost) = &mut self.lost else {
            return;
        };
        let now = Instant::now();
        lost.dial = None;
        lost.next = now + lost.backoff;
        lost.backoff = (lost.backoff * 2).min(BACKOFF.1);
        // Errors are not final before that: a target that is starting up may not know its names and users yet.
        if now.duration_since(lost.since) < self.options.reconnect {
            return;
        }
        lost.given_up = true;
        lost.why = format!("{}; then {error}", lost.why);
        let why = lost.why.clone();
        self.ready.clear();
        self.later.clear();
        for number in self.tasks.numbers() {
            self.finish(number, Outcome::Lost(why.clone()));
        }
    }
}
