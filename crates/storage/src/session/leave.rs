//! Leaving a target: because the session's owner wants no more of it, or because the target asks us to go and come back (RFC 7143 §11.9.1).
//! It promises a logout within the time that the target gives, and that what is under way ends before if it ends soon.
//! It refuses to begin anything meanwhile: what is ready waits for the next connection.

use std::time::{Duration, Instant};

use verbena_wire::iscsi::{AsyncEvent, AsyncMessage, LogoutReason, LogoutRequest};

use super::Session;
use crate::error::Error;

/// Of the time that a target gives us, such a part is left to what is under way; the rest is for the logout.
const PART: u32 = 2;

/// The target has asked us to go.
#[derive(Debug)]
pub(super) struct Going {
    why: String,
    /// The logout leaves no later than that.
    by: Instant,
    /// It has left, and is answered by then or not at all.
    until: Option<Instant>,
}

impl Session {
    /// Says goodbye and waits for the answer, for a moment.
    pub fn close(mut self) -> Result<(), Error> {
        self.control.leaving = true;
        self.log_out()?;
        self.until("answer to a logout", |session| {
            session.control.left || session.link.is_none()
        })
    }

    fn log_out(&mut self) -> Result<(), Error> {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt: self.control.next_tag(),
            cid: 0,
            cmd_sn: 0,
            exp_stat_sn: 0,
        };
        self.say(&request.emit(), &[])
    }

    /// RFC 7143 §11.9: the target wants something by itself.
    pub(super) fn told(&mut self, message: &AsyncMessage) {
        let why = || format!("the target asks us to go: {message}");
        let [_, wait, limit] = message.parameters;
        match message.event {
            // Who need not negotiate may log out instead, and has another session with what it wants.
            AsyncEvent::LogoutRequest | AsyncEvent::Negotiation => {
                let limit = Duration::from_secs(limit.into()).min(self.options.silence);
                self.going.get_or_insert_with(|| Going {
                    why: why(),
                    by: Instant::now() + limit / PART,
                    until: None,
                });
            }
            AsyncEvent::ConnectionDrop | AsyncEvent::SessionDrop => {
                // Time2Wait; no target has us wait longer than we would for its return.
                let wait = Duration::from_secs(wait.into()).min(self.options.reconnect);
                self.not_before = Some(Instant::now() + wait);
                self.give_up(&why());
            }
            // Of units and of single commands: what matters comes with their statuses.
            _ => {}
        }
    }

    /// Whether nothing new may be begun.
    pub(super) fn is_going(&self) -> bool {
        self.going.is_some()
    }

    /// The logout was answered, or there is no connection any more to take leave of.
    pub(super) fn left(&mut self) {
        self.control.left |= self.control.leaving;
        if let Some(going) = self.going.take() {
            self.give_up(&going.why);
        }
    }

    /// Time passed.
    pub(super) fn watch_leave(&mut self, now: Instant) {
        let idle = self.tasks.numbers_of(|task| task.sent).is_empty();
        let Some(going) = &mut self.going else {
            return;
        };
        match going.until {
            None if idle || going.by <= now => {
                going.until = Some(now + self.options.silence);
                if let Err(error) = self.log_out() {
                    self.give_up(&error.to_string());
                }
            }
            Some(until) if until <= now => {
                self.left();
            }
            _ => {}
        }
    }
}
