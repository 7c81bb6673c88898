//! LAP and APR: the request to load an alternate path and its answer. This adapter has one path for each connection: it reads a LAP and
//! answers that alternate paths are not supported.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field, upper_24};
use crate::{Malformed, Qpn, raw};

const INFO_LEN: usize = 72;
/// The alternate path of a LAP, which is not read.
const PATH_LEN: usize = 44;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLap {
    local_id: U32,
    remote_id: U32,
    reserved: U32,
    qpn_and_timeout: U32,
    reserved_2: U32,
    path: [u8; PATH_LEN],
    private: [u8; Lap::PRIVATE_LEN],
}

/// A request to load an alternate path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lap<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// The path, as it stands on the wire.
    pub path: [u8; PATH_LEN],
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Lap<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 168;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawLap = raw::prefix("LAP", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            remote_qpn: Qpn::wrapping(upper_24(raw.qpn_and_timeout.get())),
            path: raw.path,
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawLap {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            reserved: U32::ZERO,
            qpn_and_timeout: U32::new(self.remote_qpn.get() << 8),
            reserved_2: U32::ZERO,
            path: self.path,
            private: field(self.private),
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawApr {
    local_id: U32,
    remote_id: U32,
    info_len: u8,
    status: u8,
    reserved: U16,
    info: [u8; INFO_LEN],
    private: [u8; Apr::PRIVATE_LEN],
}

/// The answer to a [`Lap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apr<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// 0 if the path was loaded; [`Apr::UNSUPPORTED`] if there are no alternate paths.
    pub status: u8,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Apr<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 148;
    /// Alternate paths are not supported.
    pub const UNSUPPORTED: u8 = 2;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawApr = raw::prefix("APR", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            status: raw.status,
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawApr {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            info_len: 0,
            status: self.status,
            reserved: U16::ZERO,
            info: [0; INFO_LEN],
            private: field(self.private),
        })
    }
}
