//! Logout: at the owner's request, or because the target requests it (RFC 7143 §11.9.1). At the target's request the logout is sent within
//! half of the time that the target gives, earlier once outstanding commands have ended. No commands are sent meanwhile; they wait for the
//! next connection.

use std::time::{Duration, Instant};

use verbena_wire::iscsi::{AsyncEvent, AsyncMessage, LogoutReason, LogoutRequest};

use super::Session;
use crate::error::Error;

/// Outstanding commands get 1/PART of the time that the target gives; the rest is for the logout.
const PART: u32 = 2;

/// The target requested a logout.
#[derive(Debug)]
pub(super) struct Going {
    why: String,
    /// Latest time to send the logout.
    by: Instant,
    /// The logout was sent; time limit of its response.
    until: Option<Instant>,
}

impl Session {
    /// Logs out and waits for the response, at most for the time of one login step.
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

    /// RFC 7143 §11.9: an asynchronous message.
    pub(super) fn told(&mut self, message: &AsyncMessage) {
        let why = || format!("the target asks us to go: {message}");
        let [_, wait, limit] = message.parameters;
        match message.event {
            // Parameter negotiation is not supported: RFC 7143 §11.9.1 allows a logout instead, and the new session negotiates anew.
            AsyncEvent::LogoutRequest | AsyncEvent::Negotiation => {
                let limit = Duration::from_secs(limit.into()).min(self.options.silence);
                self.going.get_or_insert_with(|| Going {
                    why: why(),
                    by: Instant::now() + limit / PART,
                    until: None,
                });
            }
            AsyncEvent::ConnectionDrop | AsyncEvent::SessionDrop => {
                // Time2Wait, limited to the time for which we try to reconnect.
                let wait = Duration::from_secs(wait.into()).min(self.options.reconnect);
                self.not_before = Some(Instant::now() + wait);
                self.give_up(&why());
            }
            // Events of units and of single commands are also reported by their statuses.
            _ => {}
        }
    }

    /// Whether no new commands may be sent.
    pub(super) fn is_going(&self) -> bool {
        self.going.is_some()
    }

    /// The logout was answered, or its time limit expired.
    pub(super) fn left(&mut self) {
        self.control.left |= self.control.leaving;
        if let Some(going) = self.going.take() {
            self.give_up(&going.why);
        }
    }

    /// Checks the time limits of a logout.
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
