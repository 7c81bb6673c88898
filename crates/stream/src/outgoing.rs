//! One outgoing message and its segmentation (RFC 5041 §5).
//! Segments fit the agreed size and come in order, each with the header that lets the peer place it alone. A segment names its payload
//! by offset and length in the message.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::{Header, HeaderBytes, Tagged, Untagged};
use verbena_wire::ext::{Caps, Control, ReadV2Request};
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, ReadRequest, Terminate,
};
use verbena_wire::{Mo, Msn, Qn, Rsn, Stag, To};

use crate::frame::MAX_BODY;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// RDMA Write of `len` bytes.
    Write {
        /// The peer's buffer.
        stag: Stag,
        /// The address in it.
        to: To,
        /// Bytes.
        len: u32,
    },
    /// A Send of any kind but those with immediate data.
    Send {
        /// With a solicited event.
        solicited: bool,
        /// The peer's STag to invalidate.
        invalidate: Option<Stag>,
        /// Bytes.
        len: u32,
    },
    /// A Send with immediate data (V7); only where the peer offers it.
    SendImm {
        /// With a solicited event.
        solicited: bool,
        /// The peer's STag to invalidate.
        invalidate: Option<Stag>,
        /// The immediate data.
        immediate: Immediate,
        /// Bytes, without the immediate data.
        len: u32,
    },
    /// Immediate data alone (RFC 7306).
    Immediate {
        /// With a solicited event.
        solicited: bool,
        /// The immediate data.
        data: Immediate,
    },
    /// A Read Request.
    ReadRequest(ReadRequest),
    /// A Read V2 Request, without a sink (V3); only where the peer offers it.
    ReadV2Request(ReadV2Request),
    /// An Atomic Request.
    AtomicRequest(AtomicRequest),
    /// Answers a Read Request.
    ReadResponse {
        /// The sink of the request.
        stag: Stag,
        /// The address in it.
        to: To,
        /// Bytes.
        len: u32,
    },
    /// Answers a Read V2 Request.
    ReadV2Response {
        /// Bytes.
        len: u32,
    },
    /// Answers an Atomic Request.
    AtomicResponse(AtomicResponse),
}

impl Message {
    /// The opcode on the wire.
    pub fn opcode(&self) -> Opcode {
        match *self {
            Message::Write { .. } => Opcode::Write,
            Message::Send {
                solicited,
                invalidate,
                ..
            } => match (solicited, invalidate.is_some()) {
                (false, false) => Opcode::Send,
                (false, true) => Opcode::SendInv,
                (true, false) => Opcode::SendSe,
                (true, true) => Opcode::SendSeInv,
            },
            Message::SendImm {
                solicited,
                invalidate,
                ..
            } => Opcode::SendImm {
                solicited,
                invalidate: invalidate.is_some(),
            },
            Message::Immediate {
                solicited: false, ..
            } => Opcode::Immediate,
            Message::Immediate {
                solicited: true, ..
            } => Opcode::ImmediateSe,
            Message::ReadRequest(_) => Opcode::ReadRequest,
            Message::ReadV2Request(_) => Opcode::ReadV2Request,
            Message::AtomicRequest(_) => Opcode::AtomicRequest,
            Message::ReadResponse { .. } => Opcode::ReadResponse,
            Message::ReadV2Response { .. } => Opcode::ReadV2Response,
            Message::AtomicResponse(_) => Opcode::AtomicResponse,
        }
    }

    /// Payload bytes, supplied by the caller.
    pub fn payload_len(&self) -> u32 {
        match *self {
            Message::Write { len, .. }
            | Message::Send { len, .. }
            | Message::SendImm { len, .. }
            | Message::ReadResponse { len, .. }
            | Message::ReadV2Response { len } => len,
            _ => 0,
        }
    }

    /// It answers a read or an atomic.
    pub fn is_response(&self) -> bool {
        !self.opcode().is_request()
    }

    /// It needs a response, and takes a slot of the read depth.
    pub fn wants_response(&self) -> bool {
        matches!(
            self,
            Message::ReadRequest(_) | Message::ReadV2Request(_) | Message::AtomicRequest(_)
        )
    }

    fn address(&self) -> Option<(Stag, To)> {
        match *self {
            Message::Write { stag, to, .. } | Message::ReadResponse { stag, to, .. } => {
                Some((stag, to))
            }
            _ => None,
        }
    }

    fn ulp(&self) -> u32 {
        match *self {
            Message::Send { invalidate, .. } | Message::SendImm { invalidate, .. } => {
                invalidate.map_or(0, Stag::get)
            }
            _ => 0,
        }
    }

    fn body(&self) -> Body {
        let mut body = Body::default();
        match self {
            Message::SendImm { immediate, .. }
            | Message::Immediate {
                data: immediate, ..
            } => body.put(&immediate.emit()),
            Message::ReadRequest(request) => body.put(&request.emit()),
            Message::ReadV2Request(request) => body.put(&request.emit()),
            Message::AtomicRequest(request) => body.put(&request.emit()),
            Message::AtomicResponse(response) => body.put(&response.emit()),
            _ => {}
        }
        body
    }
}

/// A fixed-size body behind the DDP header of a first segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body {
    bytes: [u8; MAX_BODY],
    len: u8,
}

impl Default for Body {
    fn default() -> Body {
        Body {
            bytes: [0; MAX_BODY],
            len: 0,
        }
    }
}

impl Body {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.len = bytes.len() as u8;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) fn of_terminate(terminate: &Terminate) -> Body {
        let mut out = Vec::with_capacity(Terminate::MAX_LEN);
        terminate.emit(Dialect::Rfc, &mut out);
        let mut body = Body::default();
        body.put(&out);
        body
    }

    pub(crate) fn of_control(control: &Control) -> Body {
        let mut out = Vec::new();
        control.emit_payload(&mut out);
        let mut body = Body::default();
        body.put(&out);
        body
    }
}

const _: () = assert!(MAX_BODY >= Terminate::MAX_LEN && MAX_BODY >= AtomicRequest::LEN);
const _: () = assert!(MAX_BODY >= Caps::MAX_LEN, "our own CAPS fits");

/// A message that is begun and not finished.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outgoing {
    message: Message,
    /// Its number, if it is a request.
    rsn: Option<Rsn>,
    /// Its number on its queue, assigned with its first frame.
    msn: Option<Msn>,
    /// Unique among the messages of its stream; a message that is begun again gets another.
    serial: u64,
    /// Payload bytes already in segments.
    sent: u32,
    done: bool,
}

/// One segment: header, body, and which payload bytes follow.
pub(crate) struct Segment {
    pub(crate) header: HeaderBytes,
    pub(crate) body: Body,
    pub(crate) offset: u32,
    pub(crate) len: u16,
    pub(crate) last: bool,
}

impl Outgoing {
    pub(crate) fn new(message: Message, rsn: Option<Rsn>, serial: u64) -> Outgoing {
        Outgoing {
            message,
            rsn,
            msn: None,
            serial,
            sent: 0,
            done: false,
        }
    }

    /// What it is.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Its number among the requests of this side; `None` for a response.
    pub fn rsn(&self) -> Option<Rsn> {
        self.rsn
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Payload bytes already in segments.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Its last segment has been made.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The queue on which it still needs a number.
    pub(crate) fn unnumbered(&self) -> Option<Qn> {
        let qn = self.message.opcode().qn();
        qn.filter(|_| self.msn.is_none())
    }

    pub(crate) fn number(&mut self, msn: Msn) {
        self.msn = Some(msn);
    }

    /// The next segment, at most `max_ulpdu` bytes long; `None` when all are made.
    pub(crate) fn segment(&mut self, max_ulpdu: u16) -> Option<Segment> {
        if self.done {
            return None;
        }
        let body = if self.sent == 0 {
            self.message.body()
        } else {
            Body::default()
        };
        let header_len = if self.message.address().is_some() {
            Tagged::LEN
        } else {
            Untagged::LEN
        };
        let room = usize::from(max_ulpdu).saturating_sub(header_len + body.bytes().len());
        let left = self.message.payload_len() - self.sent;
        let len = left.min(room as u32);
        let last = len == left;
        let segment = Segment {
            header: self.header(last).emit(),
            body,
            offset: self.sent,
            len: len as u16,
            last,
        };
        self.sent += len;
        self.done = last;
        Some(segment)
    }

    fn header(&self, last: bool) -> Header {
        let opcode = self.message.opcode();
        if let Some((stag, to)) = self.message.address() {
            let to = to.checked_add(u64::from(self.sent)).unwrap_or(to);
            return Header::Tagged(Tagged {
                last,
                opcode,
                stag,
                to,
            });
        }
        // docs/extensions.md: the offset of later segments counts the immediate data of the first.
        let lead = match self.message {
            Message::SendImm { .. } if self.sent > 0 => Immediate::LEN as u32,
            _ => 0,
        };
        Header::Untagged(Untagged {
            last,
            opcode,
            ulp: self.message.ulp(),
            qn: opcode.qn().unwrap_or(Qn::SEND),
            msn: self.msn.unwrap_or(Msn::FIRST),
            mo: Mo::new(self.sent.wrapping_add(lead)),
        })
    }
}

#[cfg(test)]
mod tests;
