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
pub const MAX_SIDR_PRIVATE_DATA: usize = 255;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSidr {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    reserved: u8,
    length: u8,
    transaction: U64,
    number: U32,
    qkey: U32,
    gid: [u8; 16],
    private_data: [u8; MAX_SIDR_PRIVATE_DATA],
    end: u8,
}

/// The kind of an inquiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidrKind {
    /// A request.
    Request,
    /// The question has arrived, and its answer takes a while.
    Pending,
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

impl SidrKind {
    fn code(self) -> u8 {
        match self {
            Self::Request => 0,
            Self::Pending => 1,
            Self::Accepted { .. } => 2,
            Self::Refused => 3,
        }
    }
}

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrMessage<'a> {
    /// Chosen by the side that asks and repeated in the answer.
    pub transaction: u64,
    /// The kind, with the fields of that kind.
    pub kind: SidrKind,
    /// Private data of the program; at most [`MAX_SIDR_PRIVATE_DATA`] bytes.
    pub private_data: &'a [u8],
}

impl<'a> SidrMessage<'a> {
    /// Bytes of every inquiry.
    pub const LEN: usize = LEN;

    /// Reads a datagram, which must have exactly [`SidrMessage::LEN`] bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawSidr = raw::prefix(WHAT, bytes)?;
        let wrong = Malformed::Dial { what: WHAT };
        if bytes.len() != Self::LEN || raw.magic != MAGIC || raw.version != VERSION {
            return Err(wrong);
        }
        let matter = match raw.kind {
            0 => SidrKind::Request,
            1 => SidrKind::Pending,
            2 => SidrKind::Accepted {
                number: Qpn::new(raw.number.get()).ok_or(wrong)?,
                qkey: raw.qkey.get(),
                gid: raw.gid,
            },
            3 => SidrKind::Refused,
            _ => return Err(wrong),
        };
        let said = bytes
            .get(Self::LEN - MAX_SIDR_PRIVATE_DATA - 1..)
            .unwrap_or_default();
        Ok(Self {
            transaction: raw.transaction.get(),
            kind: matter,
            private_data: said.get(..usize::from(raw.length)).unwrap_or_default(),
        })
    }

    /// The datagram; private data beyond [`MAX_SIDR_PRIVATE_DATA`] bytes is cut off.
    pub fn emit(&self) -> [u8; LEN] {
        let (number, qkey, gid) = match self.kind {
            SidrKind::Accepted { number, qkey, gid } => (number.get(), qkey, gid),
            _ => (0, 0, [0; 16]),
        };
        let mut private_data = [0; MAX_SIDR_PRIVATE_DATA];
        for (to, from) in private_data.iter_mut().zip(self.private_data) {
            *to = *from;
        }
        zerocopy::transmute!(RawSidr {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind.code(),
            reserved: 0,
            length: self.private_data.len().min(MAX_SIDR_PRIVATE_DATA) as u8,
            transaction: U64::new(self.transaction),
            number: U32::new(number),
            qkey: U32::new(qkey),
            gid,
            private_data,
            end: 0,
        })
    }
}

impl fmt::Display for SidrMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transaction, .. } = self;
        let said = self.private_data.len();
        match self.kind {
            SidrKind::Request => write!(
                f,
                "SIDR request {transaction:#x}, {said} bytes of private data"
            ),
            SidrKind::Pending => write!(f, "SIDR request {transaction:#x} is pending"),
            SidrKind::Accepted { number, qkey, .. } => {
                let number = number.get();
                write!(
                    f,
                    "SIDR request {transaction:#x}: queue pair {number:#08x}, key {qkey:#x}"
                )
            }
            SidrKind::Refused => write!(f, "SIDR request {transaction:#x} is rejected"),
        }
    }
}
