//! Requests of the send queue that put nothing on the wire: bind, local invalidate and registration. They take effect in their turn, before
//! the next request starts. A registration that fails stops the send queue or fails alone, as the function's setting says.

use verbena_events::event::Outbox;
use verbena_mem::{Bind, Misuse};

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::register::{OnFailure, RegisterError, register};
use super::wait::wait_for_entry;
use crate::state::QpEvent;
use crate::wc::Status;
use crate::wr::SendOp;

/// Requests that send nothing: bind, local invalidate, and registration (M4), alone or before a Send (M11).
impl Inner {
    /// Bind, local invalidate, register: done at once, in their turn; false if nothing was done.
    pub(super) fn run_local(&mut self, init: &QpInit, at: usize, out: &mut Outbox) -> bool {
        let status = match self.sends[at].op {
            SendOp::Register(ticket) => match register(init, ticket) {
                Ok(()) => Status::Success,
                Err(why) => return self.registration_failed(init, at, why, out),
            },
            SendOp::Bind(bind) => {
                // Domain and queue pair are those of this queue pair, whatever the request says: they decide which peers may use the window (M8).
                let (pd, qp) = (init.pd, init.number);
                match init.tpt.bind(&Bind { pd, qp, ..bind }) {
                    Ok(_) => Status::Success,
                    // V5: it is retried when its memory is registered.
                    Err(Misuse::Pending(stag)) if wait_for_entry(init, stag) => return false,
                    Err(Misuse::Pending(_)) => return self.run_local(init, at, out),
                    Err(_) => Status::MwBindErr,
                }
            }
            SendOp::LocalInvalidate(stag) => match init.tpt.invalidate_local(stag, init.pd) {
                Ok(()) => Status::Success,
                Err(_) => Status::LocProtErr,
            },
            _ => return false,
        };
        if status != Status::Success {
            return self.fail_in_turn(init, at, status, out);
        }
        self.sends.end(at, status);
        self.sends.pass(at);
        true
    }

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
    fn registration_failed(
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
                self.cause.record(FailureKind::Registration, || {
                    format!("request {id} did not register: {why}")
                });
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
