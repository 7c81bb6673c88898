//! Answering the peer: reads and atomics, in order of their requests (M10, M15), which take effect in order of arrival.
//! They are checked, and atomics executed, on arrival; a right that is revoked meanwhile is respected, and a read that fails late
//! reports how much was answered. The response to a read has the bytes from before every later request of its queue pair.
//!
//! Responses are sent when the carrier has room, so a later request may arrive first. If it is about to change memory that such a
//! response still needs, those bytes are copied ([`super::snapshot`]) and it continues. A queue pair copies at most
//! `Transfer::snapshot_max` bytes; above that the stream is not read until responses have been sent. Nothing else waits.

use core::sync::atomic::{Ordering, fence};

use verbena_events::event::Outbox;
use verbena_mem::{Access, MemAccess, Refusal, Spend, atomic};
use verbena_stream::{Delivery, Outgoing, Place, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, FlushScope, Opcode};

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::link_state::LinkEvent;
use super::memory::{Right, access_violation, places};
use super::owed::{Owed, gather_part, read_access};
use super::receive_state::{BlockReason, Blocked, RESPONSES_WAIT, UNTIMED};
use super::responder::Response;
use super::touch::atomic_one_touch;
use super::transmit_buffer::{Origin, TransmitBuffer};
use super::wait::wait_for_entry;

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
enum AnswerError {
    /// This entry is pending; if it is not registered in time, that is a violation (V5).
    Pending(Stag, Violation),
    /// There will be none.
    Never(Violation),
}

impl AnswerError {
    fn of(opcode: Opcode, stag: Stag, refusal: &Refusal) -> AnswerError {
        let violation = access_violation(opcode, stag, refusal);
        match refusal {
            Refusal::Pending { .. } => AnswerError::Pending(stag, violation),
            _ => AnswerError::Never(violation),
        }
    }
}

/// Requests that arrive.
impl Inner {
    /// A Read or an atomic has arrived: it is checked, and an atomic is executed. False if the stream is over, or is not read
    /// further until the request can be checked.
    pub(super) fn admit(
        &mut self,
        init: &QpInit,
        owed: Owed,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        loop {
            let violation = match self.check_request(init, owed) {
                Ok(Some(response)) => {
                    self.responder.push(response);
                    return true;
                }
                Ok(None) => {
                    self.hold_for_responses();
                    self.defer(delivery);
                    return false;
                }
                // V5: the registration ended meanwhile, and is never pending again.
                Err(AnswerError::Pending(stag, _)) if !wait_for_entry(init, stag) => continue,
                Err(AnswerError::Pending(stag, violation)) => {
                    self.block_for_memory(init, stag, violation);
                    self.defer(delivery);
                    return false;
                }
                Err(AnswerError::Never(violation)) => violation,
            };
            self.refuse_request(init, violation, out);
            return false;
        }
    }

    /// Checks a request that has arrived; an atomic is executed, once. `None` if responses must be sent before that.
    fn check_request(
        &mut self,
        init: &QpInit,
        owed: Owed,
    ) -> Result<Option<Response>, AnswerError> {
        let response = match owed {
            Owed::Read(..) | Owed::ReadV2(..) => Response {
                spend: self.check_read(init, &owed)?,
                ..Response::new(owed)
            },
            Owed::Atomic(header, request, _) => {
                let Some(original) = self.execute(init, &request)? else {
                    return Ok(None);
                };
                Response::new(Owed::Atomic(header, request, original))
            }
        };
        Ok(Some(response))
    }

    /// M9: a read that is served spends the one-touch memory it reads (our choice).
    fn check_read(&self, init: &QpInit, owed: &Owed) -> Result<Option<Spend>, AnswerError> {
        let opcode = owed.header().opcode;
        if !self.attributes.enabled.read {
            return Err(AnswerError::Never(Violation::NotEnabled(opcode)));
        }
        let (stag, to, size) = owed.source();
        // RFC 5040 §5.2: a read of zero bytes accesses no memory, so nothing is checked.
        if size == 0 {
            return Ok(None);
        }
        let reach = read_access(init, stag, to.get(), size);
        let refused = |refusal: Refusal| {
            self.cause.note_refused(&reach);
            AnswerError::of(opcode, stag, &refusal)
        };
        let source = init.tpt.gather_remote(&reach).map_err(refused)?;
        if !source.is_one_touch() {
            return Ok(None);
        }
        drop(source);
        init.tpt.spend(&reach).map(Some).map_err(refused)
    }

    fn execute(
        &mut self,
        init: &QpInit,
        request: &AtomicRequest,
    ) -> Result<Option<u64>, AnswerError> {
        let opcode = Opcode::AtomicRequest;
        let allowed = self.attributes.enabled;
        let (enabled, needs) = match request.op {
            AtomicOp::Write { .. } => (allowed.write, Access::REMOTE_WRITE),
            AtomicOp::Flush(_) => (allowed.flush, Access::REMOTE_FLUSH),
            _ => (allowed.atomic, Access::REMOTE_ATOMIC),
        };
        if !enabled {
            return Err(AnswerError::Never(Violation::NotEnabled(opcode)));
        }
        let reach = MemAccess {
            stag: request.stag,
            at: request.to.get(),
            len: 8,
            pd: init.pd,
            qp: init.number,
            needs,
        };
        let refused = |refusal: Refusal| {
            self.cause.note_refused(&reach);
            AnswerError::of(opcode, request.stag, &refusal)
        };
        if let AtomicOp::Flush(scope) = request.op {
            flush(init, reach, scope).map_err(refused)?;
            return Ok(Some(0));
        }
        let place = init.tpt.place_remote(&reach).map_err(refused)?;
        if self.has_responses() && !self.responder.preserve(init, &mut self.transmit, &place) {
            return Ok(None);
        }
        // RFC 7306 §5.1: an unaligned word ends the stream and changes nothing.
        let original = if place.is_one_touch() {
            drop(place);
            atomic_one_touch(init, &reach, request).map_err(refused)?
        } else {
            atomic::execute(&place, request.op).map_err(|lost| refused(lost.into()))?
        };
        let unaligned = AnswerError::Never(Violation::Unaligned { to: request.to });
        let original = original.ok_or(unaligned)?;
        // The right to write does not include reading the previous value.
        let is_write = matches!(request.op, AtomicOp::Write { .. });
        Ok(Some(if is_write { 0 } else { original }))
    }

    /// Refuses the request that was delivered last; nothing behind it is executed.
    pub(super) fn refuse_request(&mut self, init: &QpInit, violation: Violation, out: &mut Outbox) {
        if let Some(stream) = self.wire.stream_mut() {
            stream.fail(violation);
        }
        self.handle_violation(init, &violation, out);
    }
}

/// Checks the memory of a Flush and makes earlier writes to it visible.
///
/// Writes of this queue pair that arrived before are placed when the request is delivered; the fence orders them before all that this
/// thread does next, the response included.
pub(super) fn flush(init: &QpInit, reach: MemAccess, scope: FlushScope) -> Result<(), Refusal> {
    let _grant = match scope {
        FlushScope::Range { len } => init.tpt.place_remote(&MemAccess { len, ..reach })?,
        FlushScope::Region => init.tpt.place_remote_entry(&reach)?,
    };
    fence(Ordering::SeqCst);
    Ok(())
}

/// Responses that are sent.
impl Inner {
    /// Begins the oldest answer that is owed.
    pub(super) fn begin_answer(&mut self) -> bool {
        let (Some(message), Some(stream)) = (self.responder.next_message(), self.wire.stream_mut())
        else {
            return false;
        };
        let Ok(outgoing) = stream.begin(message) else {
            return false;
        };
        self.responder.begin(outgoing);
        true
    }

    /// The next frame of the current answer; its memory is looked up anew, except for bytes that were copied before.
    pub(super) fn continue_answer(
        &mut self,
        init: &QpInit,
        response: Response,
        mut outgoing: Outgoing,
        out: &mut Outbox,
    ) -> bool {
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        let Some(stream) = self.wire.stream_mut() else {
            return false;
        };
        let owed = response.owed;
        let left = outgoing.message().payload_len() - outgoing.sent();
        let most = left.min(u32::from(stream.max_ulpdu()));
        let sent = outgoing.sent();
        let granted = if left == 0 || response.snapshot.has_all(sent, most) {
            None
        } else {
            match gather_part(init, &owed, sent, most) {
                Ok(gather) => Some(gather),
                Err(refusal) => {
                    let violation =
                        access_violation(owed.header().opcode, owed.source().0, &refusal);
                    self.responder.drop_response(response);
                    self.refuse_answer(init, &owed, sent, violation, out);
                    return true;
                }
            }
        };
        let Some(frame) = stream.next_frame(&mut outgoing) else {
            return false;
        };
        // Memory that is spent by this answer is invalid before the carrier takes the rest of a frame.
        let stays = response.spend.is_none() && !response.snapshot.has_any(sent, most);
        if stays && TransmitBuffer::takes_in_place(&frame, init.transfer.direct_min) {
            self.transmit.put_in_place(&frame, Origin::Answer(owed));
        } else {
            let mut copied = Ok(());
            let before = self.transmit.frame_start();
            self.transmit.put(&frame, |offset, len, stage| {
                let at = stage.len();
                if let (Some(gather), Ok(())) = (&granted, copied) {
                    let part = gather.append_to(u64::from(offset - sent), len, stage);
                    copied = part.map(|_| ());
                }
                stage.resize(at + len, 0);
                if !stays {
                    response.snapshot.overlay(offset, &mut stage[at..]);
                }
            });
            if let Err(lost) = copied {
                let refusal = Refusal::from(lost);
                drop(granted);
                self.transmit.truncate(before);
                // Markers count every byte that was framed.
                if frame.is_marked() {
                    self.link.handle(LinkEvent::Sever);
                }
                let violation = access_violation(owed.header().opcode, owed.source().0, &refusal);
                self.responder.drop_response(response);
                self.refuse_answer(init, &owed, sent, violation, out);
                return true;
            }
        }
        drop(granted);
        if !outgoing.is_done() {
            self.responder.put_current(response, outgoing);
        }
        true
    }

    pub(super) fn refuse_answer(
        &mut self,
        init: &QpInit,
        owed: &Owed,
        sent: u32,
        violation: Violation,
        out: &mut Outbox,
    ) {
        let Some(stream) = self.wire.stream_mut() else {
            return;
        };
        let first = stream.state().is_open();
        stream.fail_for(violation, Some(owed.offender(sent)));
        if first {
            self.handle_violation(init, &violation, out);
        } else {
            // The queue pair has failed already, and nothing behind this answer is owed.
            self.sends.take_current();
            self.responder.keep(0);
        }
    }

    /// The peer has taken nothing for too long, and its own next request waits for that.
    pub(super) fn responses_overdue(&mut self, init: &QpInit, out: &mut Outbox) {
        self.cause.record(FailureKind::PeerStopped, || {
            "the peer does not receive the responses to its reads, and its next request overwrites what they read".to_owned()
        });
        self.fail_fatal(init, out);
    }

    /// Drops what is being sent, except answers that must be sent before the Terminate.
    pub(super) fn keep_owed_answers(&mut self) {
        let stream = self.wire.stream().filter(|s| s.owes_responses());
        let owed = stream.map_or(0, |s| s.accounting().reads_in.len());
        self.sends.take_current();
        self.responder.keep(owed);
    }

    /// The connection is broken: a stream that is held for responses continues without them.
    pub(super) fn give_up_held_responses(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.receive.blocked().is_some_and(Blocked::for_responses) {
            self.sends.take_current();
            self.responder.keep(0);
            self.transmit.clear();
            self.resume(init, out);
        }
    }
}

/// Memory that a response needs and a later request changes.
impl Inner {
    /// Responses may still need memory: a request that changes memory checks them first.
    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        !self.responder.is_idle() || self.transmit.has_answers()
    }

    /// `len` bytes are about to be placed. False if the stream is held first.
    #[cold]
    pub(super) fn preserve_run(&mut self, init: &QpInit, place: Place, len: u32) -> bool {
        let kept = match place {
            Place::Write { stag, to } => {
                let reach = MemAccess {
                    stag,
                    at: to.get(),
                    len: u64::from(len),
                    pd: init.pd,
                    qp: init.number,
                    needs: Access::REMOTE_WRITE,
                };
                // A refusal is handled where the bytes are placed.
                let target = init.tpt.place_remote(&reach).ok();
                target
                    .is_none_or(|target| self.responder.preserve(init, &mut self.transmit, &target))
            }
            Place::Receive { offset } => self.preserve_receive(init, offset, len),
            // Not a request of the peer.
            Place::Sink { .. } | Place::Discard => true,
        };
        if !kept {
            self.hold_for_responses();
        }
        kept
    }

    fn preserve_receive(&mut self, init: &QpInit, offset: u32, len: u32) -> bool {
        let Some(receive) = self.receive.claimed() else {
            return true;
        };
        let mut kept = true;
        let range = (offset, len);
        let (responder, framed) = (&mut self.responder, &mut self.transmit);
        // As above.
        let _ = places(init, &receive.scatter, range, Right::Local, |target| {
            kept = responder.preserve(init, framed, &target);
            kept
        });
        kept
    }

    /// The entry is about to be invalidated by the peer: responses keep a copy of all that they need of it. False if there is no
    /// room for that; then the stream is held.
    pub(super) fn preserve_entry(&mut self, init: &QpInit, stag: Stag) -> bool {
        let framed = &mut self.transmit;
        let kept = self.responder.preserve_entry(init, framed, stag);
        if !kept {
            self.hold_for_responses();
        }
        kept
    }
}

/// A stream that is held for responses or memory.
impl Inner {
    /// Stops reading the stream until responses have been sent.
    pub(super) fn hold_for_responses(&mut self) {
        let (framed, accepted) = (self.transmit.framed(), self.transmit.accepted());
        let reason = BlockReason::Responses { framed, accepted };
        self.receive.block(self.now + RESPONSES_WAIT, reason);
    }

    /// Keeps a request that has arrived in full, to be executed later.
    pub(super) fn defer(&mut self, delivery: &Delivery) {
        if let Some(stream) = self.wire.stream_mut() {
            stream.defer_request();
        }
        self.receive.defer(delivery);
    }

    /// Continues where the stream was held.
    pub(super) fn resume(&mut self, init: &QpInit, out: &mut Outbox) {
        self.receive.unblock();
        if let Some(delivery) = self.take_deferred()
            && !self.deliver(init, &delivery, out)
        {
            return;
        }
        self.process_bytes(init, &[], self.now, out);
    }

    /// The request that was deferred.
    pub(super) fn take_deferred(&mut self) -> Option<Box<Delivery>> {
        let delivery = self.receive.take_deferred()?;
        if let Some(stream) = self.wire.stream_mut() {
            stream.end_deferral();
        }
        Some(delivery)
    }

    /// Bytes were sent: a stream that is held for responses may continue.
    pub(super) fn retry_held(&mut self, init: &QpInit, out: &mut Outbox) {
        let Some(Blocked {
            reason: BlockReason::Responses { framed, accepted },
            until,
        }) = self.receive.blocked()
        else {
            return;
        };
        if (framed, accepted) == (self.transmit.framed(), self.transmit.accepted()) {
            return;
        }
        self.resume(init, out);
        match self.receive.blocked() {
            // Framing alone does not show that the peer reads.
            Some(blocked) if accepted == self.transmit.accepted() => {
                self.receive.set_block_deadline(blocked.until.min(until));
            }
            Some(_) => {}
            None => out.wake_for_memory([init.number]),
        }
    }

    /// An entry that was waited for is registered now, or never will be. Requests and answers are checked when sending continues.
    pub(super) fn memory_settled(&mut self, init: &QpInit, out: &mut Outbox) {
        if init.xrcd.is_some() {
            self.relay_ready(init, out);
        }
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
}
