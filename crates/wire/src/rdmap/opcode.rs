//! The RDMAP control byte (RFC 5040 §4.1, RFC 7306 §4, docs/extensions.md): version and opcode.
//! Every byte of version 1 has a value, and each opcode a fixed queue, class and kind of message.
//! Whether the peer may use an opcode is checked in the `stream` crate.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::{Malformed, Qn};

#[cfg(test)]
mod tests;

/// RV: the version, which is 1.
const VERSION_SHIFT: u32 = 6;
const VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0x0f;
/// Reserved by RFC 5040; the Send with Immediate family uses them as selectors.
const IMM_SOLICITED: u8 = 0x10;
const IMM_INVALIDATE: u8 = 0x20;

/// What message a segment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInv,
    /// Send with Solicited Event.
    SendSe,
    /// Send with Solicited Event and Invalidate.
    SendSeInv,
    /// Terminate.
    Terminate,
    /// Immediate Data (RFC 7306).
    Immediate,
    /// Immediate Data with Solicited Event (RFC 7306).
    ImmediateSe,
    /// Atomic Request (RFC 7306).
    AtomicRequest,
    /// Atomic Response (RFC 7306).
    AtomicResponse,
    /// Read V2 Request (docs/extensions.md).
    ReadV2Request,
    /// Read V2 Response (docs/extensions.md).
    ReadV2Response,
    /// Send with Immediate (docs/extensions.md).
    SendImm {
        /// Raises a solicited event.
        solicited: bool,
        /// Carries an STag to invalidate.
        invalidate: bool,
    },
    /// Control message (docs/extensions.md).
    Control,
}

impl Opcode {
    /// Every opcode, the four forms of Send with Immediate included.
    pub const ALL: [Self; 19] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInv,
        Self::SendSe,
        Self::SendSeInv,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSe,
        Self::AtomicRequest,
        Self::AtomicResponse,
        Self::ReadV2Request,
        Self::ReadV2Response,
        Self::send_imm(false, false),
        Self::send_imm(true, false),
        Self::send_imm(false, true),
        Self::send_imm(true, true),
        Self::Control,
    ];

    const fn send_imm(solicited: bool, invalidate: bool) -> Self {
        Self::SendImm {
            solicited,
            invalidate,
        }
    }

    /// Reads the control byte.
    pub const fn parse(byte: u8) -> Result<Self, Malformed> {
        let got = byte >> VERSION_SHIFT;
        if got != VERSION {
            return Err(Malformed::RdmapVersion { got });
        }
        Ok(match byte & OPCODE_MASK {
            0x0 => Self::Write,
            0x1 => Self::ReadRequest,
            0x2 => Self::ReadResponse,
            0x3 => Self::Send,
            0x4 => Self::SendInv,
            0x5 => Self::SendSe,
            0x6 => Self::SendSeInv,
            0x7 => Self::Terminate,
            0x8 => Self::Immediate,
            0x9 => Self::ImmediateSe,
            0xa => Self::AtomicRequest,
            0xb => Self::AtomicResponse,
            0xc => Self::ReadV2Request,
            0xd => Self::ReadV2Response,
            0xe => Self::send_imm(byte & IMM_SOLICITED != 0, byte & IMM_INVALIDATE != 0),
            _ => Self::Control,
        })
    }

    /// The control byte.
    pub const fn emit(self) -> u8 {
        let selectors = match self {
            Self::SendImm {
                solicited,
                invalidate,
            } => {
                let se = if solicited { IMM_SOLICITED } else { 0 };
                let inv = if invalidate { IMM_INVALIDATE } else { 0 };
                se | inv
            }
            _ => 0,
        };
        VERSION << VERSION_SHIFT | selectors | self.code()
    }

    /// The four-bit opcode.
    pub const fn code(self) -> u8 {
        match self {
            Self::Write => 0x0,
            Self::ReadRequest => 0x1,
            Self::ReadResponse => 0x2,
            Self::Send => 0x3,
            Self::SendInv => 0x4,
            Self::SendSe => 0x5,
            Self::SendSeInv => 0x6,
            Self::Terminate => 0x7,
            Self::Immediate => 0x8,
            Self::ImmediateSe => 0x9,
            Self::AtomicRequest => 0xa,
            Self::AtomicResponse => 0xb,
            Self::ReadV2Request => 0xc,
            Self::ReadV2Response => 0xd,
            Self::SendImm { .. } => 0xe,
            Self::Control => 0xf,
        }
    }

    /// Whether the segments of this message are tagged.
    pub const fn tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// The queue of the segments of this message; `None` when tagged.
    pub const fn qn(self) -> Option<Qn> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest | Self::ReadV2Request => Some(Qn::READ_REQUEST),
            Self::Terminate => Some(Qn::TERMINATE),
            Self::AtomicResponse => Some(Qn::ATOMIC_RESPONSE),
            Self::ReadV2Response => Some(Qn::READ_V2_RESPONSE),
            Self::Control => Some(Qn::CONTROL),
            Self::Send
            | Self::SendInv
            | Self::SendSe
            | Self::SendSeInv
            | Self::Immediate
            | Self::ImmediateSe
            | Self::SendImm { .. } => Some(Qn::SEND),
        }
    }

    /// Whether the message takes a request sequence number: all but responses, Terminate and control.
    pub const fn is_request(self) -> bool {
        !matches!(
            self,
            Self::ReadResponse
                | Self::AtomicResponse
                | Self::ReadV2Response
                | Self::Terminate
                | Self::Control
        )
    }

    /// Whether it is an opcode of docs/extensions.md, which both sides must have agreed to.
    pub const fn is_extension(self) -> bool {
        self.code() >= 0xc
    }

    /// Whether RFC 7306 defines it; a peer that implements only RFC 5040 answers with a Terminate.
    pub const fn is_rfc7306(self) -> bool {
        matches!(self.code(), 0x8..=0xb)
    }

    /// Whether the message asks for a solicited event.
    pub const fn solicited(self) -> bool {
        match self {
            Self::SendSe | Self::SendSeInv | Self::ImmediateSe => true,
            Self::SendImm { solicited, .. } => solicited,
            _ => false,
        }
    }

    /// Whether the upper-layer field is an STag to invalidate.
    pub const fn invalidates(self) -> bool {
        match self {
            Self::SendInv | Self::SendSeInv => true,
            Self::SendImm { invalidate, .. } => invalidate,
            _ => false,
        }
    }

    /// Whether it is a Send: it consumes a receive and its payload is placed there.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendInv | Self::SendSe | Self::SendSeInv | Self::SendImm { .. }
        )
    }

    /// The name of the variant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "Write",
            Self::ReadRequest => "ReadRequest",
            Self::ReadResponse => "ReadResponse",
            Self::Send => "Send",
            Self::SendInv => "SendInv",
            Self::SendSe => "SendSe",
            Self::SendSeInv => "SendSeInv",
            Self::Terminate => "Terminate",
            Self::Immediate => "Immediate",
            Self::ImmediateSe => "ImmediateSe",
            Self::AtomicRequest => "AtomicRequest",
            Self::AtomicResponse => "AtomicResponse",
            Self::ReadV2Request => "ReadV2Request",
            Self::ReadV2Response => "ReadV2Response",
            Self::SendImm {
                solicited,
                invalidate,
            } => match (solicited, invalidate) {
                (false, false) => "SendImm",
                (true, false) => "SendImmSe",
                (false, true) => "SendImmInv",
                (true, true) => "SendImmSeInv",
            },
            Self::Control => "Control",
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
