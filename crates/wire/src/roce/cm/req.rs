//! REQ: the request for a connection. It names the sender's queue pair, the first PSN that the receiver is to send, and what the sender
//! can hold.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::path::{CmPath, RawPath};
use super::{BODY, field, upper_24};
use crate::{Malformed, Psn, Qpn, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    local_id: U32,
    reserved: U32,
    service: U64,
    ca_guid: U64,
    reserved_2: U32,
    qkey: U32,
    qpn_and_resources: U32,
    eecn_and_depth: U32,
    remote_eecn_and_flags: U32,
    psn_and_retry: U32,
    pkey: U16,
    mtu_and_rnr: u8,
    cm_retries_and_srq: u8,
    primary: RawPath,
    alternate: RawPath,
    private: [u8; Req::PRIVATE_LEN],
}

/// The transport service that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CmTransport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// What the extended transport type names, as XRC.
    Extended,
}

impl CmTransport {
    const ALL: [CmTransport; 4] = [
        CmTransport::Rc,
        CmTransport::Uc,
        CmTransport::Rd,
        CmTransport::Extended,
    ];
}

/// A request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Req<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The service that is asked for.
    pub service: u64,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// Q_Key; zero for connections.
    pub qkey: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// Reads and atomics of the receiver that the sender serves at once.
    pub responder_resources: u8,
    /// Reads and atomics that the sender wants outstanding.
    pub initiator_depth: u8,
    /// Exponent of the time within which the receiver's connection manager shall answer, five bits.
    pub remote_response_timeout: u8,
    /// The transport service.
    pub transport: CmTransport,
    /// The sender uses the credits of acknowledgements.
    pub flow_control: bool,
    /// PSN of the receiver's first packet.
    pub starting_psn: Psn,
    /// Exponent of the time within which the sender's connection manager answers, five bits.
    pub local_response_timeout: u8,
    /// Retries after a timeout, three bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// The code of the path MTU, 1 (256 bytes) to 5 (4096 bytes).
    pub mtu: u8,
    /// Retries after a receiver that was not ready, three bits.
    pub rnr_retry_count: u8,
    /// Repetitions of messages of the connection manager, four bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The path.
    pub primary: CmPath,
    /// Another path, all zero if there is none.
    pub alternate: CmPath,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Req<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 92;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("REQ", body)?;
        let flags = raw.remote_eecn_and_flags.get();
        let psn = raw.psn_and_retry.get();
        let qpn = raw.qpn_and_resources.get();
        let transport = CmTransport::ALL.get((flags >> 1 & 3) as usize);
        Ok(Self {
            local_id: raw.local_id.get(),
            service: raw.service.get(),
            ca_guid: raw.ca_guid.get(),
            qkey: raw.qkey.get(),
            qpn: Qpn::wrapping(upper_24(qpn)),
            responder_resources: qpn as u8,
            initiator_depth: raw.eecn_and_depth.get() as u8,
            remote_response_timeout: (flags >> 3 & 0x1f) as u8,
            transport: transport.copied().unwrap_or(CmTransport::Extended),
            flow_control: flags & 1 != 0,
            starting_psn: Psn::wrapping(upper_24(psn)),
            local_response_timeout: (psn >> 3 & 0x1f) as u8,
            retry_count: (psn & 7) as u8,
            pkey: raw.pkey.get(),
            mtu: raw.mtu_and_rnr >> 4,
            rnr_retry_count: raw.mtu_and_rnr & 7,
            max_cm_retries: raw.cm_retries_and_srq >> 4,
            srq: raw.cm_retries_and_srq & 8 != 0,
            primary: raw.primary.into(),
            alternate: raw.alternate.into(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        let flags = u32::from(self.remote_response_timeout & 0x1f) << 3
            | (self.transport as u32) << 1
            | u32::from(self.flow_control);
        let retry =
            u32::from(self.local_response_timeout & 0x1f) << 3 | u32::from(self.retry_count & 7);
        zerocopy::transmute!(Raw {
            local_id: U32::new(self.local_id),
            reserved: U32::ZERO,
            service: U64::new(self.service),
            ca_guid: U64::new(self.ca_guid),
            reserved_2: U32::ZERO,
            qkey: U32::new(self.qkey),
            qpn_and_resources: U32::new(self.qpn.get() << 8 | u32::from(self.responder_resources)),
            eecn_and_depth: U32::new(u32::from(self.initiator_depth)),
            remote_eecn_and_flags: U32::new(flags),
            psn_and_retry: U32::new(self.starting_psn.get() << 8 | retry),
            pkey: U16::new(self.pkey),
            mtu_and_rnr: self.mtu << 4 | self.rnr_retry_count & 7,
            cm_retries_and_srq: self.max_cm_retries << 4 | if self.srq { 8 } else { 0 },
            primary: self.primary.into(),
            alternate: self.alternate.into(),
            private: field(self.private),
        })
    }
}
