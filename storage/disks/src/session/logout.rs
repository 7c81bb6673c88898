//! Logout: at the owner's request, or because the target requests it (RFC 7143 §11.9.1). At the target's request the logout is sent within
//! half of the time that the target gives, earlier once outstanding commands have ended. No commands are sent meanwhile; they wait for the
//! next connection.

use std::time::{Duration, Instant};

use verbena_storage_wire::iscsi::{AsyncEvent, AsyncMessage, LogoutReason, LogoutRequest};

use super::Session;
use crate::error::Error;

/// Outstanding commands get 1/PART of the time that the target gives; the rest is for the logout.
const PART: u32 = 2;

/// The target requested a logout.
#[derive(Debug)]
pub(super) struct TargetLogout {
    why: String,
    /// Latest time to send the logout.
    send_by: Instant,
    /// The logout was sent; time limit of its response.
    until: Option<Instant>,
}

impl Session {
    /// Logs out and waits for the response, at most for the time of one login step.
    pub fn close(mut self) -> Result<(), Error> {
        self.control.logging_out = true;
        self.log_out()?;
        self.until("answer to a logout", |session| {
            session.control.logged_out || session.link.is_none()
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
        self.send_pdu(&request.emit(), &[])
    }

    /// RFC 7143 §11.9: an asynchronous message.
    pub(super) fn handle_async_message(&mut self, message: &AsyncMessage) {
        let why = || format!("the target requests a logout: {message}");
        let [_, wait, limit] = message.parameters;
        match message.event {
            // Parameter negotiation is not supported: RFC 7143 §11.9.1 allows a logout instead, and the new session negotiates anew.
            AsyncEvent::LogoutRequest | AsyncEvent::Negotiation => {
                let limit = Duration::from_secs(limit.into()).min(self.options.silence);
                self.target_logout.get_or_insert_with(|| TargetLogout {
                    why: why(),
                    send_by: Instant::now() + limit / PART,
                    until: None,
                });
            }
            AsyncEvent::ConnectionDrop | AsyncEvent::SessionDrop => {
                // Time2Wait, limited to the time for which we try to reconnect.
                let wait = Duration::from_secs(wait.into()).min(self.options.reconnect);
                self.not_before = Some(Instant::now() + wait);
                self.close_link(&why());
            }
            // Events of units and of single commands are also reported by their statuses.
            _ => {}
        }
    }

    /// Whether no new commands may be sent.
    pub(super) fn is_logging_out(&self) -> bool {
        self.target_logout.is_some()
    }

    /// The logout was answered, or its time limit expired.
    pub(super) fn finish_logout(&mut self) {
        self.control.logged_out |= self.control.logging_out;
        if let Some(going) = self.target_logout.take() {
            self.close_link(&going.why);
        }
    }

    /// Checks the time limits of a logout.
    pub(super) fn check_logout(&mut self, now: Instant) {
        let idle = self.tasks.numbers_of(|task| task.sent).is_empty();
        let Some(going) = &mut self.target_logout else {
            return;
        };
        match going.until {
            None if idle || going.send_by <= now => {
                going.until = Some(now + self.options.silence);
                if let Err(error) = self.log_out() {
                    self.close_link(&error.to_string());
                }
            }
            Some(until) if until <= now => {
                self.finish_logout();
            }
            _ => {}
        }
    }
}
