//! REJ: a connection is refused, or ended before it is established. The reason is a number; those that this adapter sends or explains have names.

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field};
use crate::{Malformed, raw};

const INFO_LEN: usize = 72;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    local_id: U32,
    remote_id: U32,
    message: u8,
    info_len: u8,
    reason: U16,
    info: [u8; INFO_LEN],
    private: [u8; Rej::PRIVATE_LEN],
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

impl RejReason {
    /// No queue pair is available.
    pub const NO_QP: Self = Self(1);
    /// No resources are available.
    pub const NO_RESOURCES: Self = Self(3);
    /// The message did not come in time.
    pub const TIMEOUT: Self = Self(4);
    /// The request is not supported.
    pub const UNSUPPORTED: Self = Self(5);
    /// The communication identifier is not known.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// The service identifier is not known: nothing listens there.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The transport service is not supported.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The connection exists or is being made already.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The GID is not known.
    pub const INVALID_GID: Self = Self(13);
    /// The path MTU is not supported.
    pub const INVALID_MTU: Self = Self(26);
    /// The program does not want it.
    pub const CONSUMER: Self = Self(28);
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NO_QP => "no queue pair available",
            Self::NO_RESOURCES => "no resources available",
            Self::TIMEOUT => "timeout",
            Self::UNSUPPORTED => "unsupported request",
            Self::INVALID_COMM_ID => "invalid communication identifier",
            Self::INVALID_SERVICE_ID => "invalid service identifier",
            Self::INVALID_TRANSPORT => "invalid transport service type",
            Self::STALE_CONNECTION => "stale connection",
            Self::INVALID_GID => "invalid GID",
            Self::INVALID_MTU => "invalid path MTU",
            Self::CONSUMER => "consumer reject",
            Self(other) => return write!(f, "reason {other}"),
        })
    }
}

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rej<'a> {
    /// The sender's communication identifier; zero if it has none.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// The message that is refused, two bits: 0 REQ, 1 REP, 2 none.
    pub message: u8,
    /// Why.
    pub reason: RejReason,
    /// Additional information, at most 72 bytes.
    pub info: &'a [u8],
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Rej<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 148;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("REJ", body)?;
        let info_len = usize::from(raw.info_len >> 1);
        let info = BODY - Self::PRIVATE_LEN - INFO_LEN;
        if info_len > INFO_LEN {
            return Err(Malformed::TooLong {
                what: "additional reject information",
                limit: INFO_LEN,
                got: info_len,
            });
        }
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            message: raw.message >> 6,
            reason: RejReason(raw.reason.get()),
            info: body.get(info..info + info_len).unwrap_or_default(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        let info_len = self.info.len().min(INFO_LEN) as u8;
        zerocopy::transmute!(Raw {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            message: self.message << 6,
            info_len: info_len << 1,
            reason: U16::new(self.reason.0),
            info: field(self.info),
            private: field(self.private),
        })
    }
}
