//! Local requests over RoCEv2: a request begins as one message of the requester, its packets carry payload from its memory, and the peer's
//! answers complete it.
//! Memory is read anew for every packet, repetitions included; a request whose own memory is refused fails in its turn, and its packets are
//! not sent from then on.

use verbena_events::event::Outbox;
use verbena_mem::Refusal;
use verbena_roce::requester::OutRequest;
use verbena_roce::{BeginError, Failure, Message, ResponseStep};
use verbena_stream::Time;
use verbena_wire::roce::{AtomicEth, Nak, Packet, Tail, pad_of};

use super::super::QpInit;
use super::super::failure::FailureKind;
use super::super::inner::Inner;
use super::super::memory::{Right, places, source};
use super::super::wqe::{Payload, Progress, Wqe};
use super::wire::RoceWire;
use super::{PacketSender, Step, sends};
use crate::state::QpEvent;
use crate::trace::{self, TraceEvent};
use crate::wc::Status;
use crate::wr::{Flags, SendOp};

/// Requests to packets.
impl Inner {
    /// Begins the next request when the packets of those before it were sent.
    pub(super) fn begin_next(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let sent_all = |roce: &RoceWire| !roce.requester.has_unsent();
        self.wire.roce().is_some_and(sent_all) && self.begin_request(init, out)
    }

    /// Begins the request at this position, which was checked; false if nothing was done.
    pub(in super::super) fn begin_message(
        &mut self,
        init: &QpInit,
        at: usize,
        out: &mut Outbox,
    ) -> bool {
        let Some(message) = message_of(&self.sends[at]) else {
            return self.fail_in_turn(init, at, Status::LocQpOpErr, out);
        };
        let Some(roce) = self.wire.roce_mut() else {
            return false;
        };
        match roce.requester.begin(message) {
            Ok(_) => {
                roce.numbers.push_back(self.sends.number(at));
                // It ends when the requester has completed it.
                self.sends[at].progress = Progress::Sent { end: u64::MAX };
                self.sends.pass(at);
                self.counters.messages_out += 1;
                true
            }
            Err(BeginError::Full | BeginError::Failed) => false,
            Err(BeginError::TooLong | BeginError::Unsupported) => {
                self.fail_in_turn(init, at, Status::LocQpOpErr, out)
            }
        }
    }

    /// Sends the next packet of the requests that were begun.
    pub(super) fn send_request(
        &mut self,
        init: &QpInit,
        sender: &mut impl PacketSender,
        out: &mut Outbox,
    ) -> Step {
        let Some(roce) = self.wire.roce_mut().filter(|_| sends(self.state)) else {
            return Step::Nothing;
        };
        let held = roce.held_request.take();
        let Some(request) = held.or_else(|| roce.requester.poll(self.now)) else {
            return Step::Nothing;
        };
        let Some(number) = roce.number_of(request.request) else {
            // It was acknowledged while it found no room.
            return Step::Done;
        };
        let at = self.sends.position(number);
        let fails = self.sends.failing().is_some_and(|failing| at >= failing);
        let Some(wqe) = self.sends.get(at).filter(|_| !fails) else {
            return Step::Done;
        };
        let len = request.packet.len_with(request.len as usize);
        match sender.put(len, |packet| write_packet(init, wqe, &request, packet)) {
            Some(Ok(())) => {
                self.counters.bytes_out += u64::from(request.len);
                if trace::is_active() {
                    let packet = &request.packet;
                    let (dest, psn) = (packet.dest_qpn.get(), packet.psn.get());
                    let ends = request.offset.saturating_add(request.len);
                    self.trace_packet(init, (at, ends), (dest, psn));
                }
            }
            Some(Err(refusal)) => {
                self.cause.record(FailureKind::LocalMemory, || {
                    format!("our own memory: {refusal}")
                });
                self.defer_failure(init, number, out);
            }
            None => {
                roce.held_request = Some(request);
                return Step::Full;
            }
        }
        Step::Done
    }
}

impl Inner {
    #[cold]
    #[inline(never)]
    fn trace_packet(&self, init: &QpInit, (at, ends): (usize, u32), (dest_qpn, psn): (u32, u32)) {
        let carries = |wqe: &Wqe| !wqe.op.wants_response();
        let wqe = self.sends.get(at);
        if wqe.is_some_and(|wqe| carries(wqe) && ends < wqe.len) {
            return;
        }
        init.observer.record(&TraceEvent::LastPacket {
            qp: init.number,
            number: self.heads.posted_number(at),
            dest_qpn,
            psn,
        });
    }
}

/// Answers of the peer.
impl Inner {
    pub(super) fn handle_response(
        &mut self,
        init: &QpInit,
        packet: &Packet<'_>,
        now: Time,
        out: &mut Outbox,
    ) {
        let Some(roce) = self.wire.roce_mut().filter(|_| sends(self.state)) else {
            return;
        };
        let before = roce.requester.counters().rnr_naks;
        let step = roce.requester.handle(packet, now);
        self.counters.rnr_received += roce.requester.counters().rnr_naks - before;
        self.finish_step(init, step, packet.payload, out);
    }

    /// Does what an answer or the time means for a request.
    pub(super) fn finish_step(
        &mut self,
        init: &QpInit,
        step: ResponseStep,
        payload: &[u8],
        out: &mut Outbox,
    ) {
        match step {
            ResponseStep::Progress | ResponseStep::Ignored => {}
            ResponseStep::Sink {
                request,
                offset,
                is_last,
            } => self.place_response(init, request, (offset, is_last), payload, out),
            ResponseStep::Atomic { request, original } => {
                let word = original.to_ne_bytes();
                self.place_response(init, request, (0, true), &word, out);
            }
            ResponseStep::Failed(failure) => self.fail_by_peer(init, failure, out),
        }
    }

    /// Places a part of the response to a request.
    fn place_response(
        &mut self,
        init: &QpInit,
        request: u64,
        (offset, is_last): (u32, bool),
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        let number = self.wire.roce().and_then(|roce| roce.number_of(request));
        let at = number.map_or(usize::MAX, |number| self.sends.position(number));
        let Some(wqe) = self.sends.get(at) else {
            return;
        };
        let placed = match &wqe.payload {
            Payload::Gather(sges) if wqe.op.has_sink() => {
                let (mut rest, mut copied) = (bytes, Ok(0));
                let range = (offset, bytes.len() as u32);
                places(init, sges, range, Right::Local, |place| {
                    copied = place.write(0, rest);
                    rest = &rest[copied.unwrap_or(0)..];
                    copied.is_ok() && !rest.is_empty()
                })
                .and_then(|()| copied.map_err(Refusal::from))
                .map(|_| ())
            }
            _ => Ok(()),
        };
        if let Err(refusal) = placed {
            self.cause.record(FailureKind::LocalMemory, || {
                format!("the sink of a response: {refusal}")
            });
            self.fail_request(init, at, Status::LocProtErr, out);
            return;
        }
        if is_last
            && let SendOp::Read {
                local_invalidate: Some(stag),
                ..
            } = wqe.op
            && init.tpt.invalidate_local(stag, init.pd).is_err()
        {
            self.fail_request(init, at, Status::LocProtErr, out);
        }
    }

    /// The oldest request failed, because of the peer or its silence.
    fn fail_by_peer(&mut self, init: &QpInit, failure: Failure, out: &mut Outbox) {
        self.report_completed();
        let (status, kind, cause) = match failure {
            Failure::RetryExceeded => (
                Status::RetryExcErr,
                FailureKind::PeerSilent,
                "the peer does not answer".to_owned(),
            ),
            Failure::RnrRetryExceeded => (
                Status::RnrRetryExcErr,
                FailureKind::RnrExceeded,
                "the peer had no receive for too long".to_owned(),
            ),
            Failure::Nak(nak) => (
                status_of(nak),
                FailureKind::of_report(status_of(nak)),
                format!("the peer sent NAK: {nak}"),
            ),
        };
        self.cause.record(kind, || cause);
        self.sends.end_first_begun(status);
        self.end(init, QpEvent::PeerLost, out);
    }
}

/// Appends a packet of a request, up to and including its pad.
fn write_packet(
    init: &QpInit,
    wqe: &Wqe,
    request: &OutRequest,
    packet: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let len = request.len as usize;
    request.packet.emit_headers(len, packet);
    if len > 0 {
        source(init, wqe, request.offset, request.len)?.append(request.offset, len, packet)?;
        packet.resize(packet.len() + pad_of(len), 0);
    }
    Ok(())
}

/// The message of a request; `None` if RoCEv2 has none for it.
fn message_of(wqe: &Wqe) -> Option<Message> {
    let (len, solicited) = (wqe.len, wqe.flags.contains(Flags::SOLICITED));
    Some(match wqe.op {
        SendOp::Send {
            invalidate,
            immediate,
        } => Message::Send {
            len,
            tail: match (invalidate, immediate) {
                (None, None) => Tail::Plain,
                (None, Some(data)) => Tail::Immediate(data.to_be_bytes()),
                (Some(rkey), None) => Tail::Invalidate(rkey),
                (Some(_), Some(_)) => return None,
            },
            solicited,
        },
        SendOp::Write { remote, immediate } => Message::Write {
            va: remote.to,
            rkey: remote.stag,
            len,
            immediate: immediate.map(u32::to_be_bytes),
            solicited,
        },
        SendOp::Read { remote, .. } => Message::Read {
            va: remote.to,
            rkey: remote.stag,
            len,
        },
        SendOp::FetchAdd {
            remote,
            add,
            mask: 0,
        } => Message::FetchAdd(AtomicEth {
            va: remote.to,
            rkey: remote.stag,
            swap_or_add: add,
            compare: 0,
        }),
        SendOp::CmpSwap {
            remote,
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        } => Message::CmpSwap(AtomicEth {
            va: remote.to,
            rkey: remote.stag,
            swap_or_add: swap,
            compare,
        }),
        _ => return None,
    })
}

/// The status of a request that the peer refused.
fn status_of(nak: Nak) -> Status {
    match nak {
        Nak::RemoteAccess => Status::RemAccessErr,
        Nak::RemoteOperational => Status::RemOpErr,
        Nak::PsnSequence | Nak::InvalidRequest | Nak::InvalidRdRequest => Status::RemInvReqErr,
    }
}
