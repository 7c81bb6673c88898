//! Descriptors (P1): requests to a work queue, in segments. The control segment has the operation, the address segment the destination
//! where one is needed, and the data segments the bytes; posting copies them. Whether a descriptor suits its channel is checked when it
//! is posted.

use smallvec::SmallVec;
use verbena_nic::wr::{Data, Flags, RemoteAddr, Sge};
use verbena_split_wire::cell::PortAddress;
use verbena_wire::number::Qpn;

/// A work queue pair of any port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its port.
    pub port: PortAddress,
    /// Its number there.
    pub wqp: Qpn,
}

/// The operation of a send descriptor. Receive descriptors are [`verbena_nic::ReceiveWr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Sends a packet into the peer's next receive.
    Send,
    /// Writes a packet into the peer's memory.
    Write,
}

/// The control segment. The status, which P1 keeps here too, is returned as a completion with the same `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlSegment {
    /// The consumer's identifier, returned with the completion.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// Immediate data; with a write it consumes a receive of the peer.
    pub immediate: Option<u32>,
    /// `SIGNALED`, `SOLICITED` and `NOTIFY` have the same meaning as for other queue pairs; fences have no effect.
    pub flags: Flags,
}

/// The address segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSegment {
    /// The destination of a write: address and memory handle.
    pub remote: Option<RemoteAddr>,
    /// The destination of a connectionless packet.
    pub destination: Option<Peer>,
}

/// A descriptor for the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The operation.
    pub control: ControlSegment,
    /// The destination: writes and connectionless packets need it.
    pub address: Option<AddressSegment>,
    /// The bytes.
    pub data: Data<'a>,
}

const INLINE_SEGMENTS: usize = 2;
const INLINE_BYTES: usize = 64;

/// A descriptor's data as the queue keeps it.
#[derive(Debug)]
pub(crate) enum Payload {
    Gather(SmallVec<[Sge; INLINE_SEGMENTS]>),
    Inline(SmallVec<[u8; INLINE_BYTES]>),
}

impl From<Data<'_>> for Payload {
    fn from(data: Data<'_>) -> Payload {
        match data {
            Data::Gather(sges) => Payload::Gather(sges.into()),
            Data::Inline(bytes) => Payload::Inline(bytes.into()),
        }
    }
}
