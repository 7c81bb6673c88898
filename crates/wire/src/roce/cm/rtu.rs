//! RTU: the requester is ready to use the connection. The receiver of a REP sends it; data may arrive before it.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field};
use crate::{Malformed, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    local_id: U32,
    remote_id: U32,
    private: [u8; Rtu::PRIVATE_LEN],
}

/// Ready to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtu<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Rtu<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("RTU", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(Raw {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            private: field(self.private),
        })
    }
}
