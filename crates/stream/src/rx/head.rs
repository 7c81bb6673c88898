//! The head of a segment: whether it is complete and allowed, and where its payload goes.
//! A segment that breaks a rule of DDP or RDMAP is refused before any of its payload is placed. Nothing is delivered here: a message
//! counts when its last frame is complete.

use verbena_wire::ddp::{Header, MAX_LEN, MIN_LEN, Tagged, Untagged, peek_len};
use verbena_wire::ext::{Control, MAX_CONTROL_PAYLOAD, ReadV2Request};
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, EchoHeader, Immediate, Opcode, Phase, ReadRequest, Terminate,
};
use verbena_wire::{Malformed, Mo, Msn, Qn};

use super::message::{MessageOutcome, SegmentBody};
use super::{FirstFpdu, Rx, RxEvent};
use crate::accounting::Accounting;
use crate::deframe::Need;
use crate::delivery::Place;
use crate::terminate::Offender;
use crate::violation::{AccessFault, Violation};

/// The longest body that is parsed with the head.
const MAX_BODY: usize = MAX_CONTROL_PAYLOAD;
const _: () = assert!(MAX_BODY >= Terminate::MAX_LEN && MAX_BODY >= AtomicRequest::LEN);
const _: () = assert!(
    super::STAGE_WITHOUT_CRC >= 2 + MAX_LEN + MAX_BODY + 4 * 2,
    "a head with its body and markers fits the stage"
);

/// The value before the first segment.
pub(super) const NO_HEADER: Header = Header::Untagged(Untagged {
    last: true,
    opcode: Opcode::Control,
    ulp: 0,
    qn: Qn::CONTROL,
    msn: Msn::FIRST,
    mo: Mo::ZERO,
});

impl Rx {
    /// Parses and checks the head at the front of the stage: bytes used, or bytes needed.
    ///
    /// Kept out of line, like [`deliver`](Rx::deliver): inlined into one loop, the compiler carries every field of both
    /// through it (docs/performance.md).
    #[inline(never)]
    pub(super) fn read_head(
        &mut self,
        stage: &[u8],
        accounting: &mut Accounting,
    ) -> Result<Result<usize, Need>, Violation> {
        self.segment.offender = None;
        let ulpdu_len = match self.deframer.open(stage)? {
            Ok(len) => len,
            Err(need) => return Ok(Err(need)),
        };
        let too_short = |need: usize| Violation::TooShort {
            need: need as u16,
            got: ulpdu_len,
        };
        if usize::from(ulpdu_len) < MIN_LEN {
            return Err(too_short(MIN_LEN));
        }
        let mut raw = [0; MAX_LEN];
        if let Err(need) = self.deframer.peek(stage, 0, &mut raw[..MIN_LEN])? {
            return Ok(Err(need));
        }
        let header_len = peek_len(raw[0]);
        if usize::from(ulpdu_len) < header_len {
            return Err(too_short(header_len));
        }
        let tail = &mut raw[MIN_LEN..header_len];
        if !tail.is_empty()
            && let Err(need) = self.deframer.peek(stage, MIN_LEN, tail)?
        {
            return Ok(Err(need));
        }
        self.segment.offender = EchoHeader::copy_from(&raw).map(|header| Offender {
            segment_len: ulpdu_len,
            header,
            read_request: None,
        });
        let header = Header::parse(&raw[..header_len])?;
        self.check_opcode(&header)?;

        let len = u32::from(ulpdu_len) - header_len as u32;
        let body_len = body_len(&header, len)?;
        let mut body = [0; MAX_BODY];
        let body = &mut body[..body_len];
        if !body.is_empty()
            && let Err(need) = self.deframer.peek(stage, header_len, body)?
        {
            return Ok(Err(need));
        }
        let used = self.deframer.consume_head(stage, header_len + body_len)?;
        self.segment.header = header;
        self.segment.body = SegmentBody::Payload;
        self.segment.len = len - body_len as u32;
        self.segment.offset = 0;
        let event = match &header {
            Header::Tagged(h) => self.handle_tagged(h, accounting)?,
            Header::Untagged(h) => self.handle_untagged(h, body, accounting)?,
        };
        self.step(event);
        Ok(Ok(used))
    }

    /// Whether this opcode is allowed on this stream, with this tagged bit and queue.
    pub(super) fn check_opcode(&self, header: &Header) -> Result<(), Violation> {
        let opcode = header.opcode();
        let agreed = match opcode {
            Opcode::ReadV2Request | Opcode::ReadV2Response => self.accepts.read_v2,
            Opcode::SendImm { .. } => self.accepts.send_imm,
            Opcode::Control => self.accepts.extensions,
            _ => self.accepts.rfc7306 || !opcode.is_rfc7306(),
        };
        if !agreed || opcode.tagged() != header.is_tagged() {
            return Err(Violation::Opcode(opcode));
        }
        if let Header::Untagged(h) = header
            && opcode.qn() != Some(h.qn)
        {
            return Err(Violation::Queue { opcode, got: h.qn });
        }
        Ok(())
    }

    fn handle_tagged(
        &mut self,
        h: &Tagged,
        accounting: &mut Accounting,
    ) -> Result<RxEvent, Violation> {
        let len = self.segment.len;
        self.check_first(h.opcode, len, h.last)?;
        let discarding = accounting.responder.is_discarding();
        let position = self.order.accept_tagged(h, len, discarding)?;
        self.segment.offset = position.offset;
        self.segment.place = if h.opcode == Opcode::Write {
            if position.first {
                self.messages.write = if discarding {
                    MessageOutcome::Discard
                } else {
                    MessageOutcome::Write
                };
            }
            match self.messages.write {
                MessageOutcome::Write => Place::Write {
                    stag: h.stag,
                    to: h.to,
                },
                _ => Place::Discard,
            }
        } else {
            let offset = accounting.reads_out.match_response(h, len)?;
            Place::Sink { offset }
        };
        Ok(RxEvent::HeadDone)
    }

    fn handle_untagged(
        &mut self,
        h: &Untagged,
        body: &[u8],
        accounting: &mut Accounting,
    ) -> Result<RxEvent, Violation> {
        let discarding = accounting.responder.is_discarding();
        self.segment.place = Place::Discard;
        match h.opcode {
            Opcode::Terminate => {
                self.order.accept_control(h)?;
                let (terminate, dialect) = Terminate::parse(body, self.terminate_phase())?;
                self.segment.body = SegmentBody::Terminate(terminate, dialect);
            }
            Opcode::Control => {
                self.order.accept_control(h)?;
                let control = Control::parse(h.ulp, body)?;
                self.check_caps(&control)?;
                if matches!(control, Control::Srq(_)) && !self.accepts.xrc {
                    return Err(Violation::OutOfPlace("SRQ"));
                }
                self.segment.body = SegmentBody::Control(control);
            }
            Opcode::ReadV2Response => {
                let (len, last) = (self.segment.len, h.last);
                let at = self.order.accept_untagged(h, len, discarding)?;
                let offset = accounting
                    .reads_out
                    .match_response_v2(at.offset, len, last)?;
                self.segment.place = Place::Sink { offset };
            }
            Opcode::AtomicResponse => {
                self.order.accept_single(h, discarding)?;
                let response = AtomicResponse::parse(body)?;
                accounting.reads_out.match_atomic_response(&response)?;
                self.segment.body = SegmentBody::AtomicResponse(response);
            }
            _ => return self.handle_request(h, body, discarding),
        }
        Ok(RxEvent::HeadDone)
    }

    fn handle_request(
        &mut self,
        h: &Untagged,
        body: &[u8],
        discarding: bool,
    ) -> Result<RxEvent, Violation> {
        if h.opcode.is_send() {
            return self.handle_send(h, body, discarding);
        }
        self.order.accept_single(h, discarding)?;
        let mut size = 0;
        let cargo = match h.opcode {
            Opcode::ReadRequest => {
                let request = ReadRequest::parse(body)?;
                size = request.size;
                if let Some(offender) = &mut self.segment.offender {
                    offender.read_request = Some(request);
                }
                if !request.sink_fits() {
                    return Err(Violation::Access {
                        opcode: h.opcode,
                        stag: request.sink_stag,
                        fault: AccessFault::Wrap,
                    });
                }
                SegmentBody::ReadRequest(*h, request)
            }
            Opcode::ReadV2Request => SegmentBody::ReadV2Request(*h, ReadV2Request::parse(body)?),
            Opcode::AtomicRequest => {
                let request = AtomicRequest::parse(body)?;
                // docs/extensions.md: towards a side that did not announce them, these codes are not defined.
                if request.op.is_extension() && !self.accepts.memory_placement {
                    let got = request.op.code();
                    return Err(Malformed::AtomicCode { got }.into());
                }
                SegmentBody::AtomicRequest(*h, request)
            }
            _ => SegmentBody::Immediate(Immediate::parse(body)?),
        };
        self.check_first(h.opcode, size, h.last)?;
        let wants_receive = matches!(cargo, SegmentBody::Immediate(_)) && !discarding;
        self.segment.body = if discarding {
            SegmentBody::Discarded
        } else {
            cargo
        };
        Ok(if wants_receive {
            RxEvent::WantsReceive
        } else {
            RxEvent::HeadDone
        })
    }

    fn handle_send(
        &mut self,
        h: &Untagged,
        body: &[u8],
        discarding: bool,
    ) -> Result<RxEvent, Violation> {
        self.check_first(h.opcode, self.segment.len, h.last)?;
        let carried = self.segment.len + body.len() as u32;
        let position = self.order.accept_untagged(h, carried, discarding)?;
        // docs/extensions.md: the message offset counts the immediate data in front of the payload.
        let lead = if matches!(h.opcode, Opcode::SendImm { .. }) {
            Immediate::LEN as u32
        } else {
            0
        };
        self.segment.offset = position.offset.saturating_sub(lead);
        if position.first {
            self.messages.immediate = Immediate::parse(body).ok();
            if self.is_rtr() {
                self.messages.send = MessageOutcome::Drop;
                return Ok(RxEvent::HeadDone);
            }
            if !discarding {
                return Ok(RxEvent::WantsReceive);
            }
            self.messages.send = MessageOutcome::Discard;
        }
        self.set_outcome(self.messages.send)?;
        Ok(RxEvent::HeadDone)
    }

    /// Sets what becomes of a Send or immediate, and checks that this segment fits its receive.
    pub(super) fn set_outcome(&mut self, outcome: MessageOutcome) -> Result<(), Violation> {
        self.messages.send = outcome;
        if let MessageOutcome::Receive { capacity } = outcome {
            let end = u64::from(self.segment.offset) + u64::from(self.segment.len);
            if end > u64::from(capacity) {
                if self.accepts.drop_overlong {
                    // docs/connections.md: an unreliable connection drops it; its receive is used for another message.
                    return self.set_outcome(MessageOutcome::Drop);
                }
                return Err(Violation::TooLong { capacity, end });
            }
            self.segment.place = Place::Receive {
                offset: self.segment.offset,
            };
        } else {
            self.segment.place = Place::Discard;
        }
        Ok(())
    }

    fn is_rtr(&self) -> bool {
        matches!(self.first, FirstFpdu::Rtr(_))
    }

    /// RFC 6581 §9.2: the agreed ready-to-receive message comes before anything else.
    fn check_first(&self, opcode: Opcode, len: u32, last: bool) -> Result<(), Violation> {
        match self.first {
            FirstFpdu::Caps => Err(Violation::Caps),
            FirstFpdu::Rtr(kinds) => {
                let agreed = match opcode {
                    Opcode::Write => kinds.write,
                    Opcode::ReadRequest => kinds.read,
                    Opcode::Send => kinds.send,
                    _ => false,
                };
                if agreed && len == 0 && last {
                    Ok(())
                } else {
                    Err(Violation::NotRtr(opcode))
                }
            }
            FirstFpdu::Any | FirstFpdu::Received => Ok(()),
        }
    }

    /// CAPS comes first and once; no other control message comes before it.
    fn check_caps(&self, control: &Control) -> Result<(), Violation> {
        let is_caps = matches!(control, Control::Caps(_));
        if is_caps == (self.first == FirstFpdu::Caps) {
            Ok(())
        } else {
            Err(Violation::Caps)
        }
    }

    /// Codes of startup errors are possible only before the first FPDU.
    fn terminate_phase(&self) -> Phase {
        if self.first == FirstFpdu::Received {
            Phase::Running
        } else {
            Phase::Startup
        }
    }
}

/// How much of the ULPDU is parsed with the head: all of a fixed-size message, the immediate of a Send, nothing else.
pub(crate) fn body_len(header: &Header, len: u32) -> Result<usize, Violation> {
    let opcode = header.opcode();
    let fixed = match opcode {
        Opcode::ReadRequest => ReadRequest::LEN,
        Opcode::ReadV2Request => ReadV2Request::LEN,
        Opcode::AtomicRequest => AtomicRequest::LEN,
        Opcode::AtomicResponse => AtomicResponse::LEN,
        Opcode::Immediate | Opcode::ImmediateSe => Immediate::LEN,
        Opcode::Terminate => return at_most(opcode, len, Terminate::MAX_LEN),
        Opcode::Control => return at_most(opcode, len, MAX_CONTROL_PAYLOAD),
        Opcode::SendImm { .. } => return immediate_len(header, len),
        _ => return Ok(0),
    };
    if len as usize != fixed {
        return Err(Violation::BodyLength {
            opcode,
            need: fixed as u16,
            got: len as u16,
        });
    }
    Ok(fixed)
}

fn at_most(opcode: Opcode, len: u32, limit: usize) -> Result<usize, Violation> {
    if len as usize > limit {
        return Err(Violation::BodyLength {
            opcode,
            need: limit as u16,
            got: len as u16,
        });
    }
    Ok(len as usize)
}

/// Only the first segment of a Send with immediate has the immediate, and all of it.
fn immediate_len(header: &Header, len: u32) -> Result<usize, Violation> {
    match header {
        Header::Untagged(h) if h.mo == Mo::ZERO => {
            if (len as usize) < Immediate::LEN {
                return Err(Violation::ImmediateMissing { got: len });
            }
            Ok(Immediate::LEN)
        }
        _ => Ok(0),
    }
}
