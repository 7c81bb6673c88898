//! Losing a connection and taking the session up again (RFC 7143 §7.1.4.4: session recovery, the one of level 0).
//! It promises an end: a target that does not come back within the time that the options give fails everything that waits for it.
//! It refuses to repeat what is not safe to repeat.

use std::time::{Duration, Instant};

use super::Session;
use super::dial;
use super::outcome::Outcome;

/// How long to wait before dialling again, at first and at most: it doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Times that a command is sent again after it, or its connection, was lost.
const AGAIN: u32 = 3;

/// A connection that is gone.
#[derive(Debug)]
pub(super) struct Lost {
    since: Instant,
    next: Instant,
    pause: Duration,
    why: String,
    /// It does not come back.
    given_up: bool,
}

impl Session {
    /// Why the session is over, if it is.
    pub(super) fn gave_up(&self) -> Option<&str> {
        let lost = self.lost.as_ref().filter(|lost| lost.given_up)?;
        Some(&lost.why)
    }

    /// Ends the connection, for this reason; what it had comes back as news.
    pub(super) fn give_up(&mut self, why: &str) {
        if let Some(link) = &mut self.link {
            link.end(why);
        }
    }

    /// The connection has ended.
    pub(super) fn lose(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            self.moved = self.moved.and(link.moved());
        }
        self.control.forget();
        // News of all that the link had came before; one of which there was none would wait for ever.
        for number in self.tasks.numbers() {
            if self.tasks.get(number).is_some_and(|task| task.sent) {
                self.orphan(number, why);
            }
        }
        let now = Instant::now();
        self.lost.get_or_insert_with(|| Lost {
            since: now,
            next: now,
            pause: PAUSE.0,
            why: why.to_owned(),
            given_up: false,
        });
    }

    /// A command that was sent has no response and will have none.
    pub(super) fn orphan(&mut self, number: u32, why: &str) {
        let Some(task) = self.tasks.get_mut(number) else {
            return;
        };
        task.sent = false;
        task.tries += 1;
        if task.command.safe && task.tries <= AGAIN && !self.control.leaving {
            self.ready.push_back(number);
        } else {
            self.finish(number, Outcome::Lost(why.to_owned()));
        }
    }

    /// Time passed.
    pub(super) fn tick(&mut self, now: Instant) {
        let due = |(when, _): &(Instant, u32)| *when <= now;
        while let Some(at) = self.later.iter().position(due) {
            let (_, number) = self.later.swap_remove(at);
            self.ready.push_back(number);
        }
        if self.link.is_some() {
            self.watch(now);
        } else if !self.control.leaving {
            self.dial_again(now);
        }
    }

    /// Looks after a connection that seems to be there.
    fn watch(&mut self, now: Instant) {
        let late = self
            .tasks
            .iter()
            .any(|task| task.sent && task.deadline <= now);
        if late {
            let limit = self.options.command;
            return self.give_up(&format!("a command took longer than {limit:?}"));
        }
        let silence = self.options.silence;
        match self.control.ping {
            Some((_, since)) if now.duration_since(since) > silence => {
                self.give_up(&format!("the target has been silent for {silence:?}"));
            }
            None if now.duration_since(self.heard) > silence => {
                // If it cannot be sent, the link has ended, and that is news.
                let _ = self.send_ping();
            }
            _ => {}
        }
    }

    /// Tries to come back.
    fn dial_again(&mut self, now: Instant) {
        let Some(lost) = self.lost.as_mut().filter(|lost| !lost.given_up) else {
            return;
        };
        if now < lost.next {
            return;
        }
        let dialled = dial::log_in(
            &self.device,
            &self.pd,
            &self.address,
            &self.options,
            self.isid,
        );
        let error = match dialled {
            Ok((link, settled)) => {
                (self.link, self.settled) = (Some(link), settled);
                self.lost = None;
                self.heard = Instant::now();
                let deadline = self.heard + self.options.command;
                for number in self.tasks.numbers() {
                    if let Some(task) = self.tasks.get_mut(number) {
                        task.deadline = deadline;
                    }
                }
                return;
            }
            Err(error) => error,
        };
        let now = Instant::now();
        lost.next = now + lost.pause;
        lost.pause = (lost.pause * 2).min(PAUSE.1);
        let too_late = now.duration_since(lost.since) >= self.options.reconnect;
        // Not sooner: a target that starts again does not know its names and users yet.
        if too_late {
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
}
