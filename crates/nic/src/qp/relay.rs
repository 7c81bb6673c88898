//! The receive side of an XRC target for shared receive queues of other processes (docs/decisions.md, decision 54).
//! The process of the queue takes the receive, places the bytes and completes; this one parses the stream, sends it what arrives, and holds the
//! acknowledgement of each request until it has answered. While an answer is waited for, the stream is not read.
//!
//! A conversation has one request without an answer at most. It ends with the stream, when the other process breaks its rules, ends, or does
//! not answer for `PROCESS_WAIT`; a message that was in progress then fails as one for a queue that does not exist.

use verbena_events::event::Outbox;
use verbena_stream::{Claim, Delivery, Place, Run, Time, Violation};
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, Opcode};
use verbena_wire::{Srqn, To};

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::owed::Owed;
use super::place::Placed;
use super::receive_state::{BlockReason, Blocked};
use super::relay_state::{MAX_CONVERSATIONS, MAX_READ_BYTES, PROCESS_WAIT, Phase, open};
use super::responder::Response;
use crate::state::Personality;
use crate::wc::Status;
use crate::xrc::record::{Answer, End, LONGEST, MAX_BODY, Reason, Request};
use crate::xrc::{PathClosed, XrcProcesses};

/// The address of a request that has none.
const NOWHERE: To = To::new(0);

/// Which conversation.
impl Inner {
    /// The queue of the next requests is of this process; false if it cannot be reached.
    pub(super) fn select_relay(
        &mut self,
        init: &QpInit,
        processes: &dyn XrcProcesses,
        (number, process): (Srqn, u32),
        out: &mut Outbox,
    ) -> bool {
        self.return_receives(init, out);
        self.put_relay_aside();
        let idle = &mut self.receive.target_mut().idle;
        let known = idle.iter().position(|relay| relay.process == process);
        let relay = match known {
            Some(at) => Some(Box::new(idle.swap_remove(at))),
            None => {
                if idle.len() >= MAX_CONVERSATIONS {
                    idle.remove(0);
                }
                open(init, processes, process)
            }
        };
        let Some(mut relay) = relay else {
            return false;
        };
        relay.number = number;
        let target = self.receive.target_mut();
        target.relay = Some(relay);
        target.selected = Some(number);
        target.parts = None;
        true
    }

    /// The queue of the next requests is another one.
    pub(super) fn put_relay_aside(&mut self) {
        let target = self.receive.target_mut();
        if let Some(relay) = target.relay.take() {
            target.idle.push(*relay);
        }
    }

    /// Requests are for a queue of another process.
    pub(super) fn is_relaying(&self) -> bool {
        self.receive.target().relay.is_some()
    }

    /// Bytes that go there are sent to another process.
    pub(super) fn relays(&self, place: Place) -> bool {
        self.is_relaying() && matches!(place, Place::Write { .. } | Place::Receive { .. })
    }

    /// The queue pair fails, or its stream is over.
    pub(super) fn drop_relays(&mut self) {
        let target = self.receive.target_mut();
        if target.relay.take().is_some() {
            target.selected = None;
        }
        target.idle.clear();
    }

    /// The message that is being received failed here.
    pub(super) fn fail_relayed(&mut self, status: Status) {
        if let Some(relay) = &mut self.receive.target_mut().relay
            && core::mem::take(&mut relay.busy)
        {
            // If the other process is gone, so is its receive.
            let _ = relay.send(Request::Fail(status), &[]);
        }
    }

    /// The conversation ended: the message that was in progress fails, as one for a queue that does not exist.
    pub(super) fn fail_relay(&mut self, init: &QpInit, why: &str, out: &mut Outbox) {
        let target = self.receive.target_mut();
        let Some(relay) = target.relay.take() else {
            return;
        };
        target.selected = None;
        if !relay.is_needed() || self.state.flushes() {
            return;
        }
        let number = relay.number;
        let violation = Violation::NoSuchSrq(number);
        self.cause
            .record(FailureKind::of_violation(&violation), || {
                format!("the process that has shared receive queue {number} {why}")
            });
        drop(relay);
        self.receive.unblock();
        self.take_deferred();
        self.refuse_request(init, violation, out);
    }
}

/// Requests of the peer.
impl Inner {
    /// A message needs a receive; false if the stream must wait for the answer, or is over.
    pub(super) fn relay_claim(&mut self, init: &QpInit, now: Time, out: &mut Outbox) -> bool {
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return false;
        };
        let answer = match core::mem::replace(&mut relay.phase, Phase::Idle) {
            Phase::Answered(answer) => answer,
            _ => {
                let srq = relay.number;
                self.ask(init, Request::Claim { srq }, &[], out);
                return false;
            }
        };
        self.receive.unblock();
        let claim = match answer {
            Answer::Granted { capacity } => {
                if let Some(relay) = &mut self.receive.target_mut().relay {
                    relay.busy = true;
                }
                Claim::Granted { capacity }
            }
            Answer::NotReady => {
                if let Some(relay) = &mut self.receive.target_mut().relay {
                    relay.unready = true;
                }
                if init.personality == Personality::Iwarp {
                    self.no_receive(init, out);
                    return false;
                }
                match self.missing_receive(init, now) {
                    Some(claim) => claim,
                    None => return false,
                }
            }
            Answer::Refused(reason) => {
                self.refuse_relayed(init, reason, (Opcode::Send, NOWHERE), out);
                return false;
            }
            _ => {
                self.break_off(init, out);
                return false;
            }
        };
        self.answer_claim(init, claim, out)
    }

    /// Bytes of a Write or of a message that has a receive.
    pub(super) fn relay_run(
        &mut self,
        init: &QpInit,
        run: Run,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Placed {
        if matches!(run.place, Place::Write { .. }) && !self.attributes.enabled.write {
            self.refuse_request(init, Violation::NotEnabled(Opcode::Write), out);
            return Placed::StreamEnded;
        }
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return Placed::StreamEnded;
        };
        relay.busy = true;
        let (mut at, mut sent) = (0_u32, Ok(()));
        for piece in bytes.chunks(MAX_BODY) {
            let request = match run.place {
                Place::Write { stag, to } => match to.checked_add(at.into()) {
                    Some(to) => Request::Write {
                        srq: relay.number,
                        stag,
                        to,
                        run: run.len - at,
                    },
                    None => break,
                },
                Place::Receive { offset } => Request::Piece {
                    offset: offset.saturating_add(at),
                },
                Place::Sink { .. } | Place::Discard => break,
            };
            at += piece.len() as u32;
            sent = sent.and_then(|()| relay.send(request, piece));
        }
        let is_full = relay.is_full();
        if sent.is_err() {
            self.break_off(init, out);
            return Placed::StreamEnded;
        }
        self.placed(bytes.len());
        if is_full {
            self.wait_for_process();
            return Placed::Paused;
        }
        Placed::Done
    }

    /// A message has arrived in full: it counts when the other process has completed it. False if the stream must wait, or is over.
    pub(super) fn relay_end(
        &mut self,
        init: &QpInit,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return false;
        };
        let answer = match core::mem::replace(&mut relay.phase, Phase::Idle) {
            Phase::Answered(answer) => answer,
            _ if !relay.busy => {
                // A Write of no bytes.
                self.counters.messages_in += 1;
                return true;
            }
            _ => {
                let Some(request) = end_of(delivery) else {
                    return true;
                };
                self.defer(delivery);
                self.ask(init, request, &[], out);
                return false;
            }
        };
        match answer {
            Answer::Done => {
                relay.busy = false;
                self.counters.messages_in += 1;
                true
            }
            Answer::Refused(reason) => {
                relay.busy = false;
                let opcode = match delivery {
                    Delivery::Send { opcode, .. } => *opcode,
                    _ => Opcode::Write,
                };
                self.refuse_relayed(init, reason, (opcode, NOWHERE), out);
                false
            }
            _ => {
                self.break_off(init, out);
                false
            }
        }
    }

    /// A read or an atomic: it counts when the response is here. False if the stream must wait, or is over.
    pub(super) fn relay_request(
        &mut self,
        init: &QpInit,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        let owed = match *delivery {
            Delivery::ReadRequest {
                header, request, ..
            } => Owed::Read(header, request),
            Delivery::ReadV2Request {
                header, request, ..
            } => Owed::ReadV2(header, request),
            Delivery::AtomicRequest {
                header, request, ..
            } => Owed::Atomic(header, request, 0),
            _ => return true,
        };
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return false;
        };
        let answer = match core::mem::replace(&mut relay.phase, Phase::Idle) {
            Phase::Answered(answer) => Some(answer),
            _ => None,
        };
        match (owed, answer) {
            (_, Some(Answer::Refused(reason))) => {
                relay.read = Vec::new();
                let request = (owed.header().opcode, owed.source().1);
                self.refuse_relayed(init, reason, request, out);
                false
            }
            (Owed::Atomic(header, request, _), Some(Answer::Value(original))) => {
                let answered = Owed::Atomic(header, request, original);
                self.responder.push(Response::new(answered));
                true
            }
            (Owed::Read(..) | Owed::ReadV2(..), Some(Answer::Data)) => {
                self.continue_read(init, owed, delivery, out)
            }
            (_, Some(_)) => {
                self.break_off(init, out);
                false
            }
            (owed, None) => {
                let request = match owed {
                    Owed::Atomic(_, request, _) => Some(request),
                    Owed::Read(..) | Owed::ReadV2(..) => None,
                };
                match request {
                    Some(request) => self.begin_atomic(init, &request, delivery, out),
                    None => self.begin_read(init, owed, delivery, out),
                }
            }
        }
    }

    fn begin_atomic(
        &mut self,
        init: &QpInit,
        request: &AtomicRequest,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        let allowed = self.attributes.enabled;
        let is_enabled = match request.op {
            AtomicOp::Write { .. } => allowed.write,
            AtomicOp::Flush(_) => allowed.flush,
            _ => allowed.atomic,
        };
        if !is_enabled {
            self.refuse_request(init, Violation::NotEnabled(Opcode::AtomicRequest), out);
            return false;
        }
        let Some(srq) = self.receive.target().selected else {
            return false;
        };
        self.defer(delivery);
        self.ask(init, Request::Atomic { srq }, &request.emit(), out);
        false
    }

    fn begin_read(
        &mut self,
        init: &QpInit,
        owed: Owed,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        let (_, _, size) = owed.source();
        // Longer ones are not executed: their bytes would be kept here.
        if !self.attributes.enabled.read || size as usize > MAX_READ_BYTES {
            self.refuse_request(init, Violation::NotEnabled(owed.header().opcode), out);
            return false;
        }
        if size == 0 {
            self.responder.push(Response::new(owed));
            return true;
        }
        if self.has_responses() && self.responder.snapshot_cost() + size as usize > MAX_READ_BYTES {
            self.hold_for_responses();
            self.defer(delivery);
            return false;
        }
        if let Some(relay) = &mut self.receive.target_mut().relay {
            relay.read = Vec::new();
        }
        self.continue_read(init, owed, delivery, out)
    }

    /// Asks for the next bytes of a read, or answers it.
    fn continue_read(
        &mut self,
        init: &QpInit,
        owed: Owed,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        let (stag, from, size) = owed.source();
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return false;
        };
        let (here, srq) = (relay.read.len(), relay.number);
        // Each answer has as many bytes as were asked for.
        let is_whole = here == size as usize || here < size as usize && here % MAX_BODY == 0;
        let to = from.checked_add(here as u64);
        let (true, Some(to)) = (is_whole, to) else {
            self.break_off(init, out);
            return false;
        };
        if here < size as usize {
            let len = (size as usize - here).min(MAX_BODY) as u32;
            self.defer(delivery);
            self.ask(init, Request::Read { srq, stag, to, len }, &[], out);
            return false;
        }
        let mut response = Response::new(owed);
        response.snapshot.put(0, core::mem::take(&mut relay.read));
        self.responder.push(response);
        true
    }

    /// Sends a request that has an answer; the stream waits for it.
    fn ask(&mut self, init: &QpInit, request: Request, body: &[u8], out: &mut Outbox) {
        let Some(relay) = &mut self.receive.target_mut().relay else {
            return;
        };
        relay.phase = Phase::Waiting;
        if relay.send(request, body).is_err() {
            return self.break_off(init, out);
        }
        self.wait_for_process();
    }

    fn wait_for_process(&mut self) {
        let until = self.now + PROCESS_WAIT;
        self.receive.block(until, BlockReason::Process);
    }

    /// The other process has ended, or broken the rules.
    fn break_off(&mut self, init: &QpInit, out: &mut Outbox) {
        if let Some(relay) = &mut self.receive.target_mut().relay {
            relay.busy = true;
        }
        self.fail_relay(init, "ended", out);
    }

    /// The other process refused a request.
    fn refuse_relayed(
        &mut self,
        init: &QpInit,
        reason: Reason,
        (opcode, to): (Opcode, To),
        out: &mut Outbox,
    ) {
        let violation = match reason {
            Reason::NoSuchSrq => {
                Violation::NoSuchSrq(self.receive.target().selected.unwrap_or_default())
            }
            Reason::Access(stag, fault) => Violation::Access {
                opcode,
                stag,
                fault,
            },
            Reason::Unaligned => Violation::Unaligned { to },
            Reason::ReceiveBuffer => Violation::ReceiveBuffer,
            Reason::Failed => {
                let number = self.receive.target().selected.unwrap_or_default();
                self.cause.record(FailureKind::CqOverflow, || {
                    format!(
                        "a receive of shared receive queue {number} of another process failed there"
                    )
                });
                return self.fail_fatal(init, out);
            }
        };
        self.refuse_request(init, violation, out);
    }
}

/// The last record of a message.
fn end_of(delivery: &Delivery) -> Option<Request> {
    Some(match *delivery {
        Delivery::Send {
            opcode,
            len,
            invalidate,
            immediate,
            ..
        } => Request::End(End {
            len,
            immediate: immediate.map(|immediate| immediate.imm()),
            invalidate,
            solicited: opcode.solicited(),
            write: false,
        }),
        Delivery::Immediate {
            opcode,
            data,
            write_len,
            ..
        } => Request::End(End {
            len: write_len.unwrap_or(0),
            immediate: Some(data.imm()),
            invalidate: None,
            solicited: opcode.solicited(),
            write: true,
        }),
        Delivery::Write { .. } => Request::WriteEnd,
        _ => return None,
    })
}

/// What other processes send.
impl Inner {
    /// A conversation may have a record or room, or is over.
    pub(super) fn relay_ready(&mut self, init: &QpInit, out: &mut Outbox) {
        let target = self.receive.target_mut();
        if target.relay.is_none() && target.idle.is_empty() {
            return;
        }
        let mut room = vec![0; LONGEST];
        // Nothing is received there but the end.
        target
            .idle
            .retain_mut(|relay| relay.receive(&mut room).is_ok());
        let Some(relay) = &mut target.relay else {
            return;
        };
        let now = relay.path.now();
        let received = relay.flush().and_then(|()| relay.receive(&mut room));
        let is_full = relay.is_full();
        let waits = matches!(relay.phase, Phase::Waiting);
        self.now = self.now.max(now);
        match received {
            Err(PathClosed) => return self.fail_relay(init, "ended", out),
            Ok(true) => {
                if let Some(stream) = self.wire.stream_mut() {
                    stream.receive_posted();
                }
                if self.receive.blocked().is_some_and(Blocked::for_receive) {
                    self.receive.unblock();
                    self.process_bytes(init, &[], self.now, out);
                }
            }
            Ok(false) => {}
        }
        if !waits && !is_full && self.receive.blocked().is_some_and(Blocked::for_process) {
            self.resume(init, out);
        }
    }
}
