//! Inquiries (docs/extensions.md): datagrams by which a program resolves the number and Q_Key of another program's datagram queue
//! pair. Question and answer have the same format and the same length, so an answer is never longer than its question. Retries
//! and the check of the sender are in the engine.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::number::Qpn;
use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

/// The first bytes.
const MAGIC: [u8; 4] = *b"VbIQ";
/// The only version.
const VERSION: u8 = 1;
/// The name in errors.
const WHAT: &str = "inquiry";

/// Bytes on the wire.
const LEN: usize = 296;
/// Bytes of private data that fit.
pub const MOST_SAID: usize = 255;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInquiry {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    reserved: u8,
    length: u8,
    transaction: U64,
    number: U32,
    qkey: U32,
    gid: [u8; 16],
    private_data: [u8; MOST_SAID],
    end: u8,
}

/// The kind of an inquiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matter {
    /// A request.
    Question,
    /// The question has arrived, and its answer takes a while.
    Heard,
    /// The answer: the queue pair exists.
    Accepted {
        /// The queue pair.
        number: Qpn,
        /// The Q_Key that datagrams to it must carry.
        qkey: u32,
        /// Its address; IPv4 addresses are mapped.
        gid: [u8; 16],
    },
    /// The question is refused.
    Refused,
}

impl Matter {
    fn kind(self) -> u8 {
        match self {
            Self::Question => 0,
            Self::Heard => 1,
            Self::Accepted { .. } => 2,
            Self::Refused => 3,
        }
    }
}

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inquiry<'a> {
    /// Chosen by the side that asks and repeated in the answer.
    pub transaction: u64,
    /// The kind, with the fields of that kind.
    pub matter: Matter,
    /// Private data of the program; at most [`MOST_SAID`] bytes.
    pub private_data: &'a [u8],
}

impl<'a> Inquiry<'a> {
    /// Bytes of every inquiry.
    pub const LEN: usize = LEN;

    /// Reads a datagram, which must have exactly [`Inquiry::LEN`] bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawInquiry = raw::prefix(WHAT, bytes)?;
        let wrong = Malformed::Dial { what: WHAT };
        if bytes.len() != Self::LEN || raw.magic != MAGIC || raw.version != VERSION {
            return Err(wrong);
        }
        let matter = match raw.kind {
            0 => Matter::Question,
            1 => Matter::Heard,
            2 => Matter::Accepted {
                number: Qpn::new(raw.number.get()).ok_or(wrong)?,
                qkey: raw.qkey.get(),
                gid: raw.gid,
            },
            3 => Matter::Refused,
            _ => return Err(wrong),
        };
        let said = bytes.get(Self::LEN - MOST_SAID - 1..).unwrap_or_default();
        Ok(Self {
            transaction: raw.transaction.get(),
            matter,
            private_data: said.get(..usize::from(raw.length)).unwrap_or_default(),
        })
    }

    /// The datagram; private data beyond [`MOST_SAID`] bytes is cut off.
    pub fn emit(&self) -> [u8; LEN] {
        let (number, qkey, gid) = match self.matter {
            Matter::Accepted { number, qkey, gid } => (number.get(), qkey, gid),
            _ => (0, 0, [0; 16]),
        };
        let mut private_data = [0; MOST_SAID];
        for (to, from) in private_data.iter_mut().zip(self.private_data) {
            *to = *from;
        }
        zerocopy::transmute!(RawInquiry {
            magic: MAGIC,
            version: VERSION,
            kind: self.matter.kind(),
            reserved: 0,
            length: self.private_data.len().min(MOST_SAID) as u8,
            transaction: U64::new(self.transaction),
            number: U32::new(number),
            qkey: U32::new(qkey),
            gid,
            private_data,
            end: 0,
        })
    }
}

impl fmt::Display for Inquiry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transaction, .. } = self;
        let said = self.private_data.len();
        match self.matter {
            Matter::Question => write!(f, "question {transaction:#x}, {said} bytes said"),
            Matter::Heard => write!(f, "question {transaction:#x} is heard"),
            Matter::Accepted { number, qkey, .. } => {
                let number = number.get();
                write!(
                    f,
                    "question {transaction:#x}: queue pair {number:#08x}, key {qkey:#x}"
                )
            }
            Matter::Refused => write!(f, "question {transaction:#x} is refused"),
        }
    }
}
