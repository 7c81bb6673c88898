//! Incoming calls of out-of-band connections (docs/connections.md): finds the queue pair that is called, and holds calls for one that is
//! not ready yet. Held calls are limited in number and time; every call is accepted or refused, except at shutdown. [`OobHandshake`] decides
//! whether a call is accepted, and makes outgoing calls.

use std::collections::HashMap;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;
use verbena_wire::ext::{DialReject, DialRequest};
use verbena_wire::number::Qpn;

use crate::config::Config;
use crate::connection::Decision;
use crate::oob::handshake::{OobHandshake, Verdict};
use crate::oob::qpn::port_and_index;
use crate::sys;

/// Queue pairs that can be called, and calls that wait for one to become ready.
#[derive(Default)]
pub(crate) struct OobRequests {
    handshakes: Mutex<HashMap<u32, Arc<OobHandshake>>>,
    held: Mutex<Vec<HeldRequest>>,
}

struct HeldRequest {
    decision: Decision,
    call: DialRequest,
    until: Time,
}

impl OobRequests {
    pub(crate) fn add(&self, number: Qpn, target: Arc<OobHandshake>) {
        self.handshakes.lock().insert(number.get(), target);
    }

    /// The number is no longer used: calls held for it are refused.
    pub(crate) fn remove(&self, number: Qpn) {
        let gone = self.handshakes.lock().remove(&number.get());
        drop(gone);
        for held in self.take_held(|held| held.call.to == number) {
            refuse(held.decision, DialReject::Unknown);
        }
    }

    /// Handles an incoming call; returns when to call [`OobRequests::expire`] if the call is held.
    pub(crate) fn handle_request(&self, config: &Config, decision: Decision) -> Option<Time> {
        match DialRequest::parse(&decision.proposal.private_data) {
            Ok(call) if decision.proposal.extensions => self.answer(config, decision, call),
            // The peer does not use the extensions, so the refusal carries no reason.
            _ => {
                decision.connection.reject(&[]);
                None
            }
        }
    }

    fn answer(&self, config: &Config, decision: Decision, call: DialRequest) -> Option<Time> {
        let target = self.handshakes.lock().get(&call.to.get()).cloned();
        let Some(target) = target else {
            refuse(decision, DialReject::Unknown);
            return None;
        };
        match target.check_call(&call, decision.connection.peer().ip()) {
            Verdict::Accept(options, introduction) => {
                let ended = introduction.clone();
                let done = Box::new(move |result: Result<Vec<u8>, _>| {
                    if result.is_err() {
                        ended.disconnected();
                    }
                });
                if decision.connection.accept(*options, done).is_err() {
                    // The caller has disconnected meanwhile.
                    introduction.disconnected();
                }
                None
            }
            Verdict::Hold => {
                let (number, until) = (call.to, self.hold(config, decision, call)?);
                if target.has_peer() || !self.handshakes.lock().contains_key(&number.get()) {
                    // The queue pair became ready or was removed after `check_call`, and that thread did not see this call yet.
                    self.ready(config, number);
                }
                Some(until)
            }
            Verdict::Refuse(why) => {
                refuse(decision, why);
                None
            }
        }
    }

    /// Holds a call until its queue pair is ready (docs/connections.md); returns when it expires.
    fn hold(&self, config: &Config, decision: Decision, call: DialRequest) -> Option<Time> {
        let until = sys::now() + config.held_timeout;
        let mut held = self.held.lock();
        let for_it = held.iter().filter(|h| h.call.to == call.to).count();
        let port = port_and_index(call.to).0;
        let at_port = held
            .iter()
            .filter(|h| port_and_index(h.call.to).0 == port)
            .count();
        if for_it >= config.held_per_qp as usize || at_port >= config.held_per_port as usize {
            drop(held);
            refuse(decision, DialReject::Busy);
            return None;
        }
        held.push(HeldRequest {
            decision,
            call,
            until,
        });
        Some(until)
    }

    fn take_held(&self, which: impl Fn(&HeldRequest) -> bool) -> Vec<HeldRequest> {
        let mut held = self.held.lock();
        let (taken, others) = held.drain(..).partition(which);
        *held = others;
        taken
    }

    /// The queue pair is ready: calls held for it are answered.
    pub(crate) fn ready(&self, config: &Config, number: Qpn) {
        for held in self.take_held(|held| held.call.to == number) {
            self.answer(config, held.decision, held.call);
        }
    }

    /// Refuses calls that were held until their time limit.
    pub(crate) fn expire(&self, now: Time) {
        for held in self.take_held(|held| held.until <= now) {
            refuse(held.decision, DialReject::Unknown);
        }
    }

    /// The engine stops: held calls are dropped without an answer, which closes their connections.
    pub(crate) fn stop(&self) {
        drop(self.take_held(|_| true));
    }
}

fn refuse(decision: Decision, why: DialReject) {
    decision.connection.reject(&why.emit());
}

impl core::fmt::Debug for OobRequests {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OobRequests").finish_non_exhaustive()
    }
}
