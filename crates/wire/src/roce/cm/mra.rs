//! MRA: a message has arrived, and its answer will take longer than the sender waits by default. It says how long to wait before the message
//! is repeated.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field};
use crate::{Malformed, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    local_id: U32,
    remote_id: U32,
    message: u8,
    timeout: u8,
    private: [u8; Mra::PRIVATE_LEN],
}

/// A message was received; its answer takes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mra<'a> {
    /// The sender's communication identifier; zero if it has none yet.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// The message, two bits: 0 REQ, 1 REP, 2 LAP.
    pub message: u8,
    /// Exponent of the time that the answer takes, five bits.
    pub service_timeout: u8,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Mra<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 222;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("MRA", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            message: raw.message >> 6,
            service_timeout: raw.timeout >> 3,
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(Raw {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            message: self.message << 6,
            timeout: self.service_timeout << 3,
            private: field(self.private),
        })
    }
}
