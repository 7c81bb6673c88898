//! iSCSI (RFC 7143): the 48-byte basic header segment of every PDU, the lengths and the digest around it, and the text
//! keys of a login. Each kind of PDU is a plain value that `parse` reads from a header and `emit` writes back; neither
//! reads or writes the bytes behind the header. Sessions and tasks are in other crates.

mod command;
mod data;
mod event;
mod layout;
mod login;
mod logout;
mod lun;
mod negotiation;
mod nop;
mod opcode;
mod pdu;
mod r2t;
mod reject;
mod response;
mod serial;
mod snack;
mod task;
pub mod text;

pub use command::{Attribute, ScsiCommand};
pub use data::{DataIn, DataOut};
pub use event::{AsyncEvent, AsyncMessage};
pub use login::{LoginRequest, LoginResponse, LoginStatus, Stage};
pub use logout::{LogoutOutcome, LogoutReason, LogoutRequest, LogoutResponse};
pub use lun::Lun;
pub use negotiation::{TextRequest, TextResponse};
pub use nop::{NopIn, NopOut};
pub use opcode::{Opcode, is_immediate};
pub use pdu::{FromInitiator, FromTarget};
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use response::{Residual, ScsiResponse, Service};
pub use serial::{Window, sn_le, sn_lt};
pub use snack::{Snack, SnackKind};
pub use task::{TaskFunction, TaskOutcome, TaskRequest, TaskResponse};

use core::fmt;

use verbena_wire::crc::{crc32c, crc32c_wire};

#[cfg(test)]
mod tests;

/// Bytes of the basic header segment.
pub const BHS_LEN: usize = 48;
/// The TCP port of targets (RFC 7143 §4.2.7.1).
pub const PORT: u16 = 3260;
/// The reserved value of a task tag: no task.
pub const NO_TAG: u32 = u32::MAX;
/// Bytes of a header or data digest.
pub const DIGEST_LEN: usize = 4;
/// Most bytes of a data segment: its length has 24 bits.
pub const MAX_DATA: u32 = 0x00ff_ffff;

/// A basic header segment in wire order.
pub type Bhs = [u8; BHS_LEN];

/// What follows a basic header segment, without pad and digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Bytes of additional header segments: a multiple of 4, at most 1020.
    pub ahs: u16,
    /// Bytes of the data segment, at most [`MAX_DATA`].
    pub data: u32,
}

impl Lengths {
    /// The lengths in a header of any opcode.
    pub const fn of(bhs: &Bhs) -> Lengths {
        let [_, _, _, _, words, high, middle, low, ..] = *bhs;
        Lengths {
            ahs: words as u16 * 4,
            data: u32::from_be_bytes([0, high, middle, low]),
        }
    }

    /// Bytes of the whole PDU, header and pad included, with the digests that are in use (RFC 7143 §11.1); an empty data
    /// segment has no data digest.
    pub const fn total(self, header_digest: bool, data_digest: bool) -> usize {
        let header = BHS_LEN + self.ahs as usize + if header_digest { DIGEST_LEN } else { 0 };
        let digest = if data_digest && self.data > 0 {
            DIGEST_LEN
        } else {
            0
        };
        header + self.data as usize + pad(self.data) as usize + digest
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ahs={} data={}", self.ahs, self.data)
    }
}

/// Zero bytes behind a segment of this length, 0 to 3; no length field includes them.
pub const fn pad(len: u32) -> u32 {
    len.wrapping_neg() & 3
}

/// The digest of a header with its additional segments, or of data with its pad (RFC 7143 §13.1).
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    crc32c_wire(crc32c(bytes))
}
