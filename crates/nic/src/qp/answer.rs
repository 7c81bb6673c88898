//! Answering the peer: reads and atomics, in order of their requests (M10, M15).
//! They are checked, and atomics executed, on arrival; a right that is revoked meanwhile is respected, and a read that fails late
//! reports how much was answered. Later requests of the peer that change the memory are handled in [`super::in_order`].

use verbena_mem::{Access, MemAccess, Refusal, Spend, atomic};
use verbena_stream::{Outgoing, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::{AtomicRequest, Opcode};

use super::QpInit;
use super::inner::Inner;
use super::link_state::LinkEvent;
use super::memory::fault_of;
use super::responder::{Owed, Response, gather_part, read_access};
use super::touch::atomic_one_touch;
use super::transmit_buffer::{Origin, TransmitBuffer};
use verbena_events::event::Outbox;

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum AnswerError {
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

impl Inner {
    /// Begins the oldest answer that is owed.
    pub(super) fn begin_answer(&mut self) -> bool {
        let (Some(message), Some(stream)) = (self.responder.next_message(), &mut self.stream)
        else {
            return false;
        };
        let Ok(outgoing) = stream.begin(message) else {
            return false;
        };
        self.responder.begin(outgoing);
        true
    }

    /// Checks a request that has arrived; an atomic is executed, once. `None` if responses must be sent before that.
    pub(super) fn check_request(
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
        let refused = |refusal: Refusal| AnswerError::of(opcode, stag, &refusal);
        let reach = read_access(init, stag, to.get(), size);
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
        if !self.attributes.enabled.atomic {
            return Err(AnswerError::Never(Violation::NotEnabled(opcode)));
        }
        let reach = MemAccess {
            stag: request.stag,
            at: request.to.get(),
            len: 8,
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_ATOMIC,
        };
        let refused = |refusal: Refusal| AnswerError::of(opcode, request.stag, &refusal);
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
        original.map(Some).ok_or(unaligned)
    }

    /// The next frame of the current answer; its memory is looked up anew, except for bytes that were copied before.
    pub(super) fn continue_answer(
        &mut self,
        init: &QpInit,
        response: Response,
        mut outgoing: Outgoing,
        out: &mut Outbox,
    ) -> bool {
        let Some(stream) = &mut self.stream else {
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
        let Some(stream) = &mut self.stream else {
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
}

pub(super) fn access_violation(opcode: Opcode, stag: Stag, refusal: &Refusal) -> Violation {
    Violation::Access {
        opcode,
        stag,
        fault: fault_of(refusal),
    }
}
