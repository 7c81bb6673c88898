//! The peer's requests over RoCEv2: each packet is executed, or refused with a NAK, before the next is looked at.
//! Rights are checked for every packet (M6, M7). A request that needs memory which is still being registered (V5), or a receive, is refused as
//! not ready, and the peer repeats it; an unreliable connection drops it. Memory of a read is looked up again for every packet of the response,
//! and what a later request changes before that is copied ([`super::unsent`]).

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, MemAccess, Placement, Refusal, atomic};
use verbena_roce::responder::{Atomic, ReadPart, SendEnd, Violation as Breach, WriteEnd};
use verbena_roce::{Refusal as Denial, RequestStep};
use verbena_stream::Violation;
use verbena_wire::rdmap::{AtomicOp, Opcode};
use verbena_wire::roce::{AtomicEth, Immediate, Nak, Packet, Reth, Tail, pad_of};
use verbena_wire::{Stag, To};

use super::super::QpInit;
use super::super::failure::FailureKind;
use super::super::inner::Inner;
use super::super::memory::{Right, access_violation, places};
use super::super::owed::read_access;
use super::super::snapshot::Snapshots;
use super::{PacketSender, Step};
use crate::srq::Srq;
use crate::state::{QpEvent, QpType};
use crate::wc::{Wc, WcOp};

/// Why a packet is not executed.
#[derive(Debug, Clone, Copy)]
enum Unexecuted {
    /// A receive or memory is not there yet.
    NotReady,
    /// Unsent responses need what it would change, and there is no room for a copy.
    ResponsesFirst,
    /// The peer may not do this.
    Violation(Nak, Violation),
}

impl Unexecuted {
    fn of(opcode: Opcode, stag: Stag, refusal: &Refusal) -> Unexecuted {
        match refusal {
            Refusal::Pending { .. } => Unexecuted::NotReady,
            _ => {
                let violation = access_violation(opcode, stag, refusal);
                Unexecuted::Violation(Nak::RemoteAccess, violation)
            }
        }
    }

    fn not_enabled(opcode: Opcode) -> Unexecuted {
        Unexecuted::Violation(Nak::InvalidRequest, Violation::NotEnabled(opcode))
    }

    fn of_receive(refusal: &Refusal) -> Unexecuted {
        match refusal {
            Refusal::Pending { .. } => Unexecuted::NotReady,
            _ => Unexecuted::Violation(Nak::RemoteOperational, Violation::ReceiveBuffer),
        }
    }
}

/// What was executed.
#[derive(Debug, Clone, Copy)]
enum Executed {
    /// A packet that completes no receive.
    Packet,
    /// An atomic operation, on a word with this value.
    Atomic(u64),
    /// The end of a message that completes its receive.
    Message(Wc),
}

/// Requests that arrive.
impl Inner {
    pub(super) fn handle_request(&mut self, init: &QpInit, packet: &Packet<'_>, out: &mut Outbox) {
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        let executed = match roce.responder.handle(packet) {
            RequestStep::Nothing => return,
            RequestStep::Violation(breach) => return self.fail_breach(init, breach, out),
            RequestStep::Receive {
                is_first,
                offset,
                end,
            } => self.receive_part(init, (is_first, offset), packet.payload, end, out),
            RequestStep::Write {
                rkey,
                va,
                message,
                end,
            } => self.write_part(init, (rkey, va), message, packet.payload, end, out),
            RequestStep::Read(reth) => self.check_read_of_peer(init, reth),
            RequestStep::Atomic(atomic) => self.execute_atomic(init, atomic),
        };
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        match executed {
            Ok(Executed::Packet) => roce.responder.accept(),
            Ok(Executed::Atomic(original)) => roce.responder.accept_atomic(original),
            Ok(Executed::Message(wc)) => {
                // Accepted before it completes: a completion queue without room fails the queue pair, not the message.
                roce.responder.accept();
                self.complete_receive(init, wc, out);
            }
            Err(why) => self.refuse_packet(init, why, out),
        }
        // An answer that the peer no longer waits for is not sent.
        if let Some(roce) = self.wire.roce_mut() {
            roce.drop_snapshots();
        }
    }

    fn refuse_packet(&mut self, init: &QpInit, why: Unexecuted, out: &mut Outbox) {
        let timer = self.attributes.rnr_timer;
        let Some(roce) = self.wire.roce_mut() else {
            return;
        };
        match why {
            Unexecuted::NotReady => {
                roce.responder.refuse(Denial::NotReady(timer));
                if init.qp_type != QpType::Uc {
                    self.counters.rnr_sent += 1;
                }
                self.return_unused(init, out);
            }
            Unexecuted::ResponsesFirst => roce.responder.refuse(Denial::ResponsesFirst),
            Unexecuted::Violation(nak, violation) => {
                roce.responder.refuse(Denial::Nak(nak));
                // An unreliable connection drops what memory refuses, and its peer may not try STags until one is right. Local receives with
                // invalid memory end it.
                let drops =
                    init.qp_type == QpType::Uc && matches!(violation, Violation::Access { .. });
                if drops {
                    self.count_refusal(init, &violation, out);
                    self.return_unused(init, out);
                } else {
                    self.handle_violation(init, &violation, out);
                }
            }
        }
    }

    /// A message of an unreliable connection was dropped: the receive that it took is free again.
    fn return_unused(&mut self, init: &QpInit, out: &mut Outbox) {
        if init.qp_type == QpType::Uc {
            self.receive.take_touching();
            self.receive.return_claimed(init, out);
        }
    }

    /// The peer broke the protocol; the responder has queued a NAK.
    fn fail_breach(&mut self, init: &QpInit, breach: Breach, out: &mut Outbox) {
        self.cause.record(FailureKind::of_breach(&breach), || {
            format!("the peer violated the protocol: {breach}")
        });
        out.push(Event::QpRequest { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }

    /// Takes the receive of a message that begins.
    fn claim_receive(&mut self, init: &QpInit, out: &mut Outbox) -> Result<(), Unexecuted> {
        let take = Some(|srq: &Srq| srq.take_at_once(init.number, out));
        let Some(receive) = self.receive.find_receive(init, &mut self.heads, take) else {
            self.note_refusal(self.now);
            return Err(Unexecuted::NotReady);
        };
        if let Some(status) = receive.fault {
            self.complete_faulty_receive(init, receive.id, status, out);
            let violation = Violation::ReceiveBuffer;
            return Err(Unexecuted::Violation(Nak::RemoteOperational, violation));
        }
        self.receive.set_claimed(receive);
        self.receive.begin_srq_hold(init, self.now);
        Ok(())
    }

    fn receive_part(
        &mut self,
        init: &QpInit,
        (is_first, offset): (bool, u32),
        payload: &[u8],
        end: Option<SendEnd>,
        out: &mut Outbox,
    ) -> Result<Executed, Unexecuted> {
        if is_first {
            self.claim_receive(init, out)?;
        }
        self.preserve_receive_part(init, offset, payload)?;
        self.fill_receive(init, offset, payload)?;
        let Some(end) = end else {
            return Ok(Executed::Packet);
        };
        let (immediate, invalidate) = match end.tail {
            Tail::Plain => (None, None),
            Tail::Immediate(data) => (Some(data), None),
            Tail::Invalidate(rkey) => (None, Some(rkey)),
        };
        if let Some(stag) = invalidate {
            if let Some(roce) = self.wire.roce_mut()
                && !roce.preserve_entry(init, stag)
            {
                return Err(Unexecuted::ResponsesFirst);
            }
            let refused = |r: Refusal| Unexecuted::of(Opcode::SendInv, stag, &r);
            init.tpt
                .invalidate_remote(stag, init.pd, init.number)
                .map_err(refused)?;
        }
        let wc = self.message_wc(init, WcOp::Receive, end.len, immediate, end.solicited);
        let invalidated = invalidate;
        Ok(Executed::Message(Wc { invalidated, ..wc }))
    }

    /// Responses keep a copy of what is about to be placed into the receive.
    fn preserve_receive_part(
        &mut self,
        init: &QpInit,
        offset: u32,
        payload: &[u8],
    ) -> Result<(), Unexecuted> {
        let (Some(roce), Some(receive)) = (self.wire.roce_mut(), self.receive.claimed()) else {
            return Ok(());
        };
        if !roce.has_unsent_reads() {
            return Ok(());
        }
        let (range, mut kept) = ((offset, payload.len() as u32), true);
        // A refusal is handled where the bytes are placed.
        let _ = places(init, &receive.scatter, range, Right::Local, |target| {
            kept = roce.preserve(init, &target);
            kept
        });
        kept.then_some(()).ok_or(Unexecuted::ResponsesFirst)
    }

    /// Responses keep a copy of what is about to be changed.
    fn preserve_unsent(&mut self, init: &QpInit, target: &Placement<'_>) -> Result<(), Unexecuted> {
        let roce = self.wire.roce_mut();
        let kept = roce.is_none_or(|roce| roce.preserve(init, target));
        kept.then_some(()).ok_or(Unexecuted::ResponsesFirst)
    }

    /// Places payload into the receive that the message has taken.
    fn fill_receive(&self, init: &QpInit, offset: u32, payload: &[u8]) -> Result<(), Unexecuted> {
        let Some(receive) = self.receive.claimed() else {
            return Err(Unexecuted::NotReady);
        };
        let (capacity, len) = (receive.capacity(), payload.len() as u32);
        let end = u64::from(offset) + u64::from(len);
        if end > u64::from(capacity) {
            let violation = Violation::TooLong { capacity, end };
            return Err(Unexecuted::Violation(Nak::InvalidRequest, violation));
        }
        let (mut rest, mut copied) = (payload, Ok(0));
        places(
            init,
            &receive.scatter,
            (offset, len),
            Right::Local,
            |place| {
                copied = place.write(0, rest);
                rest = &rest[copied.unwrap_or(0)..];
                copied.is_ok() && !rest.is_empty()
            },
        )
        .and_then(|()| copied.map_err(Refusal::from))
        .map_err(|refusal| Unexecuted::of_receive(&refusal))?;
        Ok(())
    }

    fn write_part(
        &mut self,
        init: &QpInit,
        (rkey, va): (Stag, To),
        message: Option<Reth>,
        payload: &[u8],
        end: Option<WriteEnd>,
        out: &mut Outbox,
    ) -> Result<Executed, Unexecuted> {
        let opcode = Opcode::Write;
        if !self.attributes.enabled.write {
            return Err(Unexecuted::not_enabled(opcode));
        }
        let refused = |r: Refusal| Unexecuted::of(opcode, rkey, &r);
        let access = |at: To, len: u32| MemAccess {
            stag: rkey,
            at: at.get(),
            len: u64::from(len),
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_WRITE,
        };
        // Nothing of a message is placed that does not fit as a whole. A message of zero bytes accesses no memory.
        if let Some(reth) = message.filter(|reth| reth.len > 0) {
            let reach = access(reth.va, reth.len);
            let place = init.tpt.place_remote(&reach);
            drop(
                place
                    .inspect_err(|_| self.cause.note_refused(&reach))
                    .map_err(refused)?,
            );
        }
        let immediate = end.and_then(|end| end.immediate);
        if immediate.is_some() {
            self.claim_receive(init, out)?;
        }
        if !payload.is_empty() {
            let reach = access(va, payload.len() as u32);
            let place = init.tpt.place_remote(&reach).map_err(refused)?;
            self.preserve_unsent(init, &place)?;
            let mut copied = Ok(0);
            if place.is_one_touch() {
                drop(place);
                let touching = self.receive.touching();
                let next = touching.grant(init, &reach, end.is_some(), |place| {
                    copied = place.write(0, payload);
                    copied.is_ok()
                });
                if let Some(next) = next.map_err(refused)? {
                    self.receive.set_touching(next);
                }
            } else {
                copied = place.write(0, payload);
            }
            copied.map_err(|lost| refused(lost.into()))?;
        }
        let Some(end) = end else {
            return Ok(Executed::Packet);
        };
        if let Err(violation) = self.receive.take_touching().finish(init) {
            return Err(Unexecuted::Violation(Nak::RemoteAccess, violation));
        }
        if immediate.is_none() {
            self.counters.messages_in += 1;
            return Ok(Executed::Packet);
        }
        let op = WcOp::ReceiveWriteImm;
        let wc = self.message_wc(init, op, end.len, immediate, end.solicited);
        Ok(Executed::Message(wc))
    }

    fn message_wc(
        &self,
        init: &QpInit,
        op: WcOp,
        len: u32,
        immediate: Option<Immediate>,
        solicited: bool,
    ) -> Wc {
        self.receive_wc(init, op, len, immediate.map(u32::from_be_bytes), solicited)
    }

    /// The memory of a read is checked when the request arrives, and again for every packet of the response.
    fn check_read_of_peer(&self, init: &QpInit, reth: Reth) -> Result<Executed, Unexecuted> {
        let opcode = Opcode::ReadRequest;
        if !self.attributes.enabled.read {
            return Err(Unexecuted::not_enabled(opcode));
        }
        if reth.len == 0 {
            return Ok(Executed::Packet);
        }
        let reach = read_access(init, reth.rkey, reth.va.get(), reth.len);
        let refused = |r: Refusal| {
            self.cause.note_refused(&reach);
            Unexecuted::of(opcode, reth.rkey, &r)
        };
        let source = init.tpt.gather_remote(&reach).map_err(refused)?;
        if source.is_one_touch() {
            // A response may have to be sent again, which memory that is invalid after one message cannot give (docs/roce.md).
            return Err(refused(Refusal::Touched { stag: reth.rkey }));
        }
        Ok(Executed::Packet)
    }

    fn execute_atomic(&mut self, init: &QpInit, request: Atomic) -> Result<Executed, Unexecuted> {
        let opcode = Opcode::AtomicRequest;
        if !self.attributes.enabled.atomic {
            return Err(Unexecuted::not_enabled(opcode));
        }
        let (AtomicEth { va, rkey, .. }, op) = match request {
            Atomic::FetchAdd(eth) => {
                let add = eth.swap_or_add;
                (eth, AtomicOp::FetchAdd { add, mask: 0 })
            }
            Atomic::CmpSwap(eth) => {
                let op = AtomicOp::CmpSwap {
                    swap: eth.swap_or_add,
                    swap_mask: u64::MAX,
                    compare: eth.compare,
                    compare_mask: u64::MAX,
                };
                (eth, op)
            }
        };
        let refused = |r: Refusal| Unexecuted::of(opcode, rkey, &r);
        let reach = MemAccess {
            stag: rkey,
            at: va.get(),
            len: 8,
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_ATOMIC,
        };
        let place = init.tpt.place_remote(&reach);
        let place = place
            .inspect_err(|_| self.cause.note_refused(&reach))
            .map_err(refused)?;
        self.preserve_unsent(init, &place)?;
        let original = if place.is_one_touch() {
            if !atomic::is_aligned(&place) {
                return Err(unaligned(va));
            }
            drop(place);
            let spend = init.tpt.spend(&reach).map_err(refused)?;
            let place = init.tpt.place_remote(&reach).map_err(refused)?;
            let original = atomic::execute(&place, op);
            drop((place, spend));
            original
        } else {
            atomic::execute(&place, op)
        };
        original
            .map_err(|lost| refused(lost.into()))?
            .map(Executed::Atomic)
            .ok_or(unaligned(va))
    }
}

fn unaligned(to: To) -> Unexecuted {
    Unexecuted::Violation(Nak::InvalidRequest, Violation::Unaligned { to })
}

/// Responses.
impl Inner {
    /// Sends the next acknowledgement or packet of a response. A queue pair that has failed still sends the NAK that says why.
    pub(super) fn send_response(
        &mut self,
        init: &QpInit,
        sender: &mut impl PacketSender,
        out: &mut Outbox,
    ) -> Step {
        let Some(roce) = self.wire.roce_mut() else {
            return Step::Nothing;
        };
        let held = roce.held_response.take();
        let Some(response) = held.or_else(|| roce.responder.poll()) else {
            return Step::Nothing;
        };
        let source = response.source.filter(|part| part.memory.len > 0);
        if source.is_some() && !self.state.receives() {
            // Its memory may be gone with the queue pair's other resources.
            roce.drop_snapshots();
            return Step::Done;
        }
        let len = source.map_or(0, |part| part.memory.len as usize);
        let snapshots = &roce.snapshots;
        let put = sender.put(response.packet.len_with(len), |packet| {
            response.packet.emit_headers(len, packet);
            source.map_or(Ok(()), |part| write_payload(init, snapshots, &part, packet))
        });
        match put {
            Some(Ok(())) => {
                self.counters.bytes_out += len as u64;
                if let Some(part) = source {
                    roce.handle_read_sent(&part);
                }
            }
            Some(Err(violation)) => {
                roce.responder
                    .fail_read(response.packet.psn, Nak::RemoteAccess);
                roce.drop_snapshots();
                self.handle_violation(init, &violation, out);
            }
            None => {
                roce.held_response = Some(response);
                return Step::Full;
            }
        }
        Step::Done
    }
}

/// Appends the payload of a response packet, up to and including its pad.
fn write_payload(
    init: &QpInit,
    snapshots: &Snapshots,
    part: &ReadPart,
    packet: &mut Vec<u8>,
) -> Result<(), Violation> {
    let (memory, begin) = (part.memory, packet.len());
    let len = memory.len as usize;
    let copies = snapshots.of(part.read);
    if copies.is_some_and(|copies| copies.has_all(part.offset, memory.len)) {
        // Its memory may have been invalidated by the peer.
        packet.resize(begin + len, 0);
    } else {
        let reach = read_access(init, memory.rkey, memory.va.get(), memory.len);
        let refused = |refusal| access_violation(Opcode::ReadRequest, memory.rkey, &refusal);
        let gather = init.tpt.gather_remote(&reach).map_err(refused)?;
        let copied = gather.append_to(0, len, packet);
        copied.map_err(|lost| refused(Refusal::from(lost)))?;
    }
    if let Some(copies) = copies {
        copies.overlay(part.offset, &mut packet[begin..]);
    }
    packet.resize(packet.len() + pad_of(len), 0);
    Ok(())
}
