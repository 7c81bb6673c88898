//! SIDR_REQ and SIDR_REP: which datagram queue pair serves a service, and its Q_Key. No connection results from them.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field, upper_24};
use crate::{Malformed, Qpn, raw};

const INFO_LEN: usize = 72;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawReq {
    request_id: U32,
    pkey: U16,
    reserved: U16,
    service: U64,
    private: [u8; SidrReq::PRIVATE_LEN],
}

/// Asks for the queue pair of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReq<'a> {
    /// Identifies the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// The service that is asked for.
    pub service: u64,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> SidrReq<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 216;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawReq = raw::prefix("SIDR_REQ", body)?;
        Ok(Self {
            request_id: raw.request_id.get(),
            pkey: raw.pkey.get(),
            service: raw.service.get(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawReq {
            request_id: U32::new(self.request_id),
            pkey: U16::new(self.pkey),
            reserved: U16::ZERO,
            service: U64::new(self.service),
            private: field(self.private),
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRep {
    request_id: U32,
    status: u8,
    info_len: u8,
    reserved: U16,
    qpn: U32,
    service: U64,
    qkey: U32,
    info: [u8; INFO_LEN],
    private: [u8; SidrRep::PRIVATE_LEN],
}

/// The answer to a [`SidrReq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrRep<'a> {
    /// That of the request.
    pub request_id: u32,
    /// 0 if the queue pair is valid, 1 if the service is not supported, 2 if the service rejects.
    pub status: u8,
    /// The queue pair.
    pub qpn: Qpn,
    /// The service.
    pub service: u64,
    /// The Q_Key of the queue pair.
    pub qkey: u32,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> SidrRep<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 136;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: RawRep = raw::prefix("SIDR_REP", body)?;
        Ok(Self {
            request_id: raw.request_id.get(),
            status: raw.status,
            qpn: Qpn::wrapping(upper_24(raw.qpn.get())),
            service: raw.service.get(),
            qkey: raw.qkey.get(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(RawRep {
            request_id: U32::new(self.request_id),
            status: self.status,
            info_len: 0,
            reserved: U16::ZERO,
            qpn: U32::new(self.qpn.get() << 8),
            service: U64::new(self.service),
            qkey: U32::new(self.qkey),
            info: [0; INFO_LEN],
            private: field(self.private),
        })
    }
}
