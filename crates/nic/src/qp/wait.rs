//! Waiting for memory that is reserved and not registered yet (V5): what waits, until when, and how it continues.
//! Only what needs the pending entry waits: a send queue stops at its request, a stream is not read further; everything else
//! continues, and every wait of a peer ends in time. There is no polling: the thread that completes the registration wakes the queue pair.
//!
//! Every access to memory, and the effect of a pending entry on it:
//!
//! | access | effect |
//! | --- | --- |
//! | posting | no lookup |
//! | a request is begun: elements of a Send or Write, the sink of a Read or atomic | the send queue stops ([`waits_for_memory`]) |
//! | bind: the region or the window | the send queue stops (`run_local`) |
//! | local or remote invalidate | fails as for a valid region: neither can be invalidated |
//! | framing and sending a request, placing its answer | it was valid when the request began and never is pending again |
//! | a Write's target, a receive's elements, staged or read directly | the stream is held ([`Inner::block_for_memory`]) |
//! | the source of a read, the word of an atomic | the stream is held ([`Inner::admit`]) |
//! | framing and sending an answer | it was valid when the request arrived |

use verbena_stream::{Time, Violation};
use verbena_wire::Stag;

use super::in_order::RESPONSES_WAIT;
use super::inner::Inner;
use super::memory::{Right, is_pending};
use super::receive_state::{BlockReason, Blocked, UNTIMED};
use super::wqe::{Payload, PeerFeatures, Wqe};
use super::{Qp, QpInit};
use crate::wr::SendOp;
use verbena_events::event::{Outbox, Wake};

impl Qp {
    /// Continues with what it was woken for.
    pub fn wake(&self, wake: Wake, out: &mut Outbox) {
        match wake {
            Wake::Receive(_) => self.receive_ready(out),
            Wake::Memory(_) => self.run_locked(out, Inner::memory_settled),
            // Not for a queue pair.
            Wake::Sends(_) => {}
        }
    }
}

impl Inner {
    /// The stream's next bytes need this entry: it is not read further.
    pub(super) fn block_for_memory(&mut self, init: &QpInit, stag: Stag, violation: Violation) {
        let until = self.now + init.transfer.memory_wait;
        self.receive
            .block(until, BlockReason::Memory(stag, violation));
    }

    /// An entry that was waited for is registered now, or never will be. Requests and answers are checked when sending continues.
    fn memory_settled(&mut self, init: &QpInit, out: &mut Outbox) {
        let before = self.receive.blocked();
        if before.is_some_and(Blocked::for_memory) {
            self.resume(init, out);
            if let Some(blocked) = self.receive.blocked() {
                // It was another entry; or the next one is waited for, and the time is not known here.
                let same = before.filter(|b| b.reason == blocked.reason);
                let until = same.map_or(UNTIMED, |b| b.until);
                self.receive.set_block_deadline(until);
            }
        }
    }

    /// Processes the timeouts of what is blocked.
    pub(super) fn check_wait_timeouts(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        self.responder.handle_timeout(now);
        self.check_hold(init, now, out);
        let Some(blocked) = self.receive.blocked() else {
            return;
        };
        if blocked.until == UNTIMED {
            let wait = match blocked.reason {
                BlockReason::Memory(..) => init.transfer.memory_wait,
                BlockReason::Responses { .. } => RESPONSES_WAIT,
                BlockReason::Receive => init.transfer.receive_wait,
            };
            self.receive.set_block_deadline(now + wait);
        } else if now >= blocked.until {
            match blocked.reason {
                BlockReason::Receive => self.no_receive(init, out),
                BlockReason::Responses { accepted, framed }
                    if self.transmit.accepted() > accepted =>
                {
                    // A slow peer is not one that takes nothing.
                    let accepted = self.transmit.accepted();
                    let reason = BlockReason::Responses { framed, accepted };
                    self.receive.block(now + RESPONSES_WAIT, reason);
                }
                BlockReason::Responses { .. } => self.responses_overdue(init, out),
                BlockReason::Memory(stag, violation) => {
                    self.receive.unblock();
                    if self.take_deferred().is_some() {
                        self.refuse_request(init, violation, out);
                    } else if self.fail_pending_expired(init, (stag, violation), out) {
                        self.process_bytes(init, &[], now, out);
                    }
                }
            }
        }
    }

    /// When the first wait ends.
    pub(super) fn wait_deadline(&self) -> Option<Time> {
        let blocked = self.receive.blocked().map(|b| b.until);
        let waits = self.responder.deadline().into_iter().chain(blocked);
        waits.chain(self.receive.next_hold_check()).min()
    }
}

/// Requests to be woken for this entry; false if it is not pending any more.
pub(super) fn wait_for_entry(init: &QpInit, stag: Stag) -> bool {
    init.tpt.wait(stag, init.number)
}

/// A request needs memory that is pending: the send queue stops until the queue pair is woken.
pub(super) fn waits_for_memory(init: &QpInit, wqe: &Wqe, peer: PeerFeatures) -> bool {
    // A program got its STags from the table, so a table without any pending entry needs no closer look.
    if !init.tpt.has_pending() {
        return false;
    }
    let Payload::Gather(sges) = &wqe.payload else {
        return false;
    };
    let classic = matches!(wqe.op, SendOp::Read { .. }) && !peer.read_v2;
    let sink = wqe
        .op
        .wants_response()
        .then(|| Right::of_sink(init, classic));
    // All of them, before anything of the message is sent: in the middle of one nothing else could be sent.
    sges.iter()
        .any(|sge| is_pending(init, sge, sink).is_some_and(|stag| wait_for_entry(init, stag)))
}
