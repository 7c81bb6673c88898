//! The transmit half of a peer: control first, then the message under way, then responses and requests at random.
//! No more is framed than the link has room for, so that control frames occur at every possible place. What may be sent is decided by
//! the stream.

use std::rc::Rc;

use verbena_stream::responder::Due;
use verbena_stream::{BeginError, Frame, Message, Offender, Outgoing, Time};
use verbena_wire::rdmap::Opcode;

use super::receive::{Response, access};
use super::{Peer, Right};
use crate::work::TaggedAddr;

/// The message under way.
#[derive(Debug)]
pub(super) struct Sending {
    outgoing: Outgoing,
    source: Source,
}

/// The source of a message's payload.
#[derive(Debug)]
enum Source {
    /// A copy from the work request.
    Payload(Rc<[u8]>),
    /// Memory, read again for each frame.
    Memory { at: TaggedAddr, offender: Offender },
}

impl Peer {
    /// Frames until the link's room is used up or nothing may be sent.
    pub(super) fn fill_outbox(&mut self, room: usize, now: Time) {
        while self.outbox.len() < room && self.frame_one() {}
        if self.outbox.len() < room {
            self.settle_acks(now);
        }
    }

    pub(super) fn enqueue_bytes(&mut self, bytes: &[u8]) {
        self.outbox.extend(bytes);
        self.framed += bytes.len() as u64;
    }

    fn frame_one(&mut self) -> bool {
        // A message may begin before or after control is drained; only its frames must wait.
        if self.sending.is_none() && self.rng.coin() {
            self.begin();
        }
        let Some(stream) = &mut self.stream else {
            return false;
        };
        if let Some(frame) = stream.poll_control(false) {
            self.write_frame(&frame, &[]);
            return true;
        }
        if self.sending.is_none() && !self.begin() {
            return false;
        }
        self.continue_message();
        true
    }

    /// Makes the next frame of the message under way.
    fn continue_message(&mut self) {
        let (Some(mut sending), Some(stream)) = (self.sending.take(), &mut self.stream) else {
            return;
        };
        let total = sending.outgoing.message().payload_len();
        let bytes: Rc<[u8]> = match &sending.source {
            Source::Payload(bytes) => bytes.clone(),
            Source::Memory { at, offender } => {
                // The memory may have been invalidated since the request arrived.
                let read = self.memory.read(*at, total, Right::RemoteRead);
                match read {
                    Ok(bytes) => bytes.into(),
                    Err(_) if total == 0 => Rc::default(),
                    Err(fault) => {
                        let offender = offender.advanced(sending.outgoing.sent());
                        let violation = access(Opcode::ReadRequest, at.stag, fault);
                        return stream.fail_for(violation, Some(offender));
                    }
                }
            }
        };
        let Some(frame) = stream.next_frame(&mut sending.outgoing) else {
            return;
        };
        self.write_frame(&frame, &bytes);
        if !sending.outgoing.is_done() {
            self.sending = Some(sending);
        } else if let Some(rsn) = sending.outgoing.rsn() {
            let end = self.framed;
            let request = self.requests.iter_mut().find(|r| r.rsn == Some(rsn));
            if let Some(request) = request {
                request.end = Some(end);
            }
        }
    }

    /// Begins a message. A failing stream sends responses only, so that those it owes precede its Terminate.
    fn begin(&mut self) -> bool {
        let answer_first = self.rng.chance(self.profile.responses_first);
        if answer_first && self.begin_answer() {
            return true;
        }
        self.begin_request() || self.begin_answer()
    }

    fn begin_answer(&mut self) -> bool {
        let (Some(answer), Some(stream)) = (self.answers.front(), &mut self.stream) else {
            return false;
        };
        let (message, source) = match *answer {
            Response::Read {
                source,
                size,
                sink,
                offender,
            } => {
                let message = match sink {
                    Some(sink) => Message::ReadResponse {
                        stag: sink.stag,
                        to: sink.to,
                        len: size,
                    },
                    None => Message::ReadV2Response { len: size },
                };
                let at = source;
                (message, Source::Memory { at, offender })
            }
            Response::Atomic(response) => (
                Message::AtomicResponse(response),
                Source::Payload(Rc::default()),
            ),
        };
        let Ok(outgoing) = stream.begin(message) else {
            return false;
        };
        self.answers.pop_front();
        self.sending = Some(Sending { outgoing, source });
        true
    }

    fn begin_request(&mut self) -> bool {
        let (Some(request), Some(stream)) = (self.requests.get_mut(self.begun), &mut self.stream)
        else {
            return false;
        };
        match stream.begin(request.message.clone()) {
            Ok(outgoing) => {
                request.rsn = outgoing.rsn();
                let source = Source::Payload(request.payload.clone());
                self.begun += 1;
                self.sending = Some(Sending { outgoing, source });
                true
            }
            Err(BeginError::Unsupported(_) | BeginError::TooLong) => {
                self.refuse_next();
                self.begin_request()
            }
            Err(_) => false,
        }
    }

    /// Sends an acknowledgement that can wait now, or sets its timer.
    fn settle_acks(&mut self, now: Time) {
        let Some(stream) = self.stream.as_ref().filter(|_| !self.ended) else {
            return;
        };
        let accounting = stream.accounting();
        let owed = accounting.responder.due(accounting.reads_in.oldest()) != Due::Nothing;
        if !owed || !self.tracked {
            self.ack_at = None;
        } else if self.profile.ack_delay.is_zero() {
            self.flush_acks_now();
        } else {
            self.ack_at.get_or_insert(now + self.profile.ack_delay);
        }
    }

    /// Sends a delayed acknowledgement whose time has come.
    pub(super) fn flush_acks(&mut self, now: Time) {
        if self.ack_at.take_if(|at| *at <= now).is_some() {
            self.flush_acks_now();
        }
    }

    fn flush_acks_now(&mut self) {
        while let Some(frame) = self.stream.as_mut().and_then(|s| s.poll_control(true)) {
            self.write_frame(&frame, &[]);
        }
    }

    /// Puts a frame into the outbox, in this peer's form.
    fn write_frame(&mut self, frame: &Frame, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(frame.size());
        if self.profile.gather && frame.is_plain() {
            let from = frame.payload_offset() as usize;
            bytes.extend(frame.head());
            bytes.extend(&payload[from..from + usize::from(frame.payload_len())]);
            bytes.extend(frame.trailer());
        } else {
            frame.write(&mut bytes, |offset, hole| {
                let from = offset as usize;
                hole.copy_from_slice(&payload[from..from + hole.len()]);
            });
        }
        assert_eq!(bytes.len(), frame.size(), "a frame has the size it says");
        self.enqueue_bytes(&bytes);
    }
}
