//! Registration by a work request of the send queue (M4), alone or before a Send (M11).
//! Four things are checked when the request is executed: that the queue pair may register, the STag's index, its tag instance, and the
//! room. If it fails, the send queue stops and may be restarted, or the connection ends. The program has prepared the memory before.
//!
//! | after a failure | reactive | anticipatory |
//! | --- | --- | --- |
//! | state | `Sqe` | `Err` (`iwarp`: `Terminate` first) |
//! | requests before it | continue, and complete | flushed, if they have not completed |
//! | itself | [`Status::MwBindErr`] | the same |
//! | requests behind it, posted or still to be | flushed | flushed |
//! | receives | continue | flushed |
//! | the peer's reads, atomics, Writes | are served | are not |
//! | the peer | notices nothing; its Terminate is processed | gets a Terminate |
//! | afterwards | may be moved to `Rts` again | the connection is over |

use serde::{Deserialize, Serialize};
use verbena_mem::{Misuse, Ticket};

use super::QpInit;
use super::inner::Inner;
use crate::state::QpEvent;
use crate::wc::Status;
use crate::wr::SendOp;
use verbena_events::event::Outbox;

/// Whether the requests of a queue pair may register memory, and what happens if one fails (M4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Registration {
    /// They may.
    pub enabled: bool,
    /// What happens if one fails.
    pub on_failure: OnFailure,
}

/// What a failed registration does to its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// The program relies on the table to report that there is no room: its send queue stops, everything else continues, and
    /// it may try again.
    Reactive,
    /// The program keeps count itself, so that a failure is an error: the connection ends.
    #[default]
    Anticipatory,
}

/// Why a registration failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The queue pair was not created for it.
    #[error("registration by work request is not enabled on the queue pair")]
    NotEnabled,
    /// The table rejected it: the STag's index, its tag instance, or the room.
    #[error(transparent)]
    Refused(#[from] Misuse),
}

/// Executes a registration, after all four checks.
pub(super) fn register(init: &QpInit, ticket: Ticket) -> Result<(), RegisterError> {
    if !init.registration.enabled {
        return Err(RegisterError::NotEnabled);
    }
    Ok(init.tpt.execute(ticket, init.pd)?)
}

impl Inner {
    /// M11: executes the registration of a Send, once; false if that failed, and nothing is sent.
    pub(super) fn register_before_send(
        &mut self,
        init: &QpInit,
        at: usize,
        out: &mut Outbox,
    ) -> bool {
        let SendOp::RegisterSend {
            ticket,
            invalidate,
            immediate,
        } = self.sends[at].op
        else {
            return true;
        };
        match register(init, ticket) {
            Ok(()) => {
                // It is a plain Send from here on, which may be restarted if the peer has no receive.
                self.sends[at].op = SendOp::Send {
                    invalidate,
                    immediate,
                };
                true
            }
            Err(why) => {
                self.registration_failed(init, at, why, out);
                false
            }
        }
    }

    /// The registration at `at` failed; false while it must wait for its turn to fail.
    pub(super) fn registration_failed(
        &mut self,
        init: &QpInit,
        at: usize,
        why: RegisterError,
        out: &mut Outbox,
    ) -> bool {
        match init.registration.on_failure {
            OnFailure::Reactive => {
                self.stop_sending(init, at, why);
                true
            }
            OnFailure::Anticipatory => {
                let id = self.sends[at].id;
                self.cause
                    .get_or_insert_with(|| format!("request {id} did not register: {why}"));
                self.fail_request(init, at, Status::MwBindErr, out);
                true
            }
        }
    }

    /// The send queue stops at this request: those before it continue, it and those behind it end in their turn.
    fn stop_sending(&mut self, init: &QpInit, at: usize, why: RegisterError) {
        if let Some(next) = self.state.next(init.personality, QpEvent::SendFailed) {
            self.state = next;
        }
        self.sends.stop_at(at, why);
    }
}
