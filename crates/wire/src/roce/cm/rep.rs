//! REP: the reply that accepts a request. It names the sender's queue pair and the first PSN that the receiver is to send.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY, field, upper_24};
use crate::{Malformed, Psn, Qpn, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    local_id: U32,
    remote_id: U32,
    qkey: U32,
    qpn: U32,
    eecn: U32,
    psn: U32,
    responder_resources: u8,
    initiator_depth: u8,
    delay_and_flags: u8,
    rnr_and_srq: u8,
    ca_guid: U64,
    private: [u8; Rep::PRIVATE_LEN],
}

/// A reply that accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rep<'a> {
    /// The sender's communication identifier.
    pub local_id: u32,
    /// The receiver's communication identifier.
    pub remote_id: u32,
    /// Q_Key; zero for connections.
    pub qkey: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// PSN of the receiver's first packet.
    pub starting_psn: Psn,
    /// Reads and atomics of the receiver that the sender serves at once.
    pub responder_resources: u8,
    /// Reads and atomics that the sender wants outstanding.
    pub initiator_depth: u8,
    /// Exponent of the longest delay of an acknowledgement, five bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was accepted, two bits; 1 is "not supported".
    pub failover: u8,
    /// The sender uses the credits of acknowledgements.
    pub flow_control: bool,
    /// Retries after a receiver that was not ready, three bits.
    pub rnr_retry_count: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// Private data; shorter data is sent with zeros behind it.
    pub private: &'a [u8],
}

impl<'a> Rep<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 196;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("REP", body)?;
        Ok(Self {
            local_id: raw.local_id.get(),
            remote_id: raw.remote_id.get(),
            qkey: raw.qkey.get(),
            qpn: Qpn::wrapping(upper_24(raw.qpn.get())),
            starting_psn: Psn::wrapping(upper_24(raw.psn.get())),
            responder_resources: raw.responder_resources,
            initiator_depth: raw.initiator_depth,
            target_ack_delay: raw.delay_and_flags >> 3,
            failover: raw.delay_and_flags >> 1 & 3,
            flow_control: raw.delay_and_flags & 1 != 0,
            rnr_retry_count: raw.rnr_and_srq >> 5,
            srq: raw.rnr_and_srq & 0x10 != 0,
            ca_guid: raw.ca_guid.get(),
            private: body.get(BODY - Self::PRIVATE_LEN..BODY).unwrap_or_default(),
        })
    }

    pub(super) fn emit(&self) -> [u8; BODY] {
        zerocopy::transmute!(Raw {
            local_id: U32::new(self.local_id),
            remote_id: U32::new(self.remote_id),
            qkey: U32::new(self.qkey),
            qpn: U32::new(self.qpn.get() << 8),
            eecn: U32::ZERO,
            psn: U32::new(self.starting_psn.get() << 8),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            delay_and_flags: self.target_ack_delay << 3
                | (self.failover & 3) << 1
                | u8::from(self.flow_control),
            rnr_and_srq: self.rnr_retry_count << 5 | if self.srq { 0x10 } else { 0 },
            ca_guid: U64::new(self.ca_guid),
            private: field(self.private),
        })
    }
}
