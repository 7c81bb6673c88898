//! DREQ and DREP: the request to end a connection and its reply. A DREQ names the receiver's queue pair, so that one for an earlier
//! connection with the same identifiers is recognized.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field, upper_24};
use crate::{Malformed, Qpn, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDreq {
    local_id: U32,
    remote_id: U32,
    qpn: U32,
    private: [u8; Dreq::PRIVATE_LEN],
}

/// A request to end a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dreq<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Dreq<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 220;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawDreq = raw::prefix("DREQ", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            remote_qpn: Qpn::wrapping(upper_24(raw.qpn.get())),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawDreq {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            qpn: U32::new(self.remote_qpn.get() << 8),
            private: field(self.private),
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDrep {
    local_id: U32,
    remote_id: U32,
    private: [u8; Drep::PRIVATE_LEN],
}

/// The reply: the connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drep<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Drep<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawDrep = raw::prefix("DREP", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawDrep {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            private: field(self.private),
        })
    }
}
