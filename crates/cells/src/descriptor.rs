//! Descriptors (P1): what a consumer asks of a work queue, in segments as the source has them.
//! A control segment says which operation, an address segment where to if that is not clear, data segments where the bytes are;
//! posting copies them. It refuses to judge: whether a descriptor fits its channel is decided where it is posted.

use smallvec::SmallVec;
use verbena_nic::wr::{Data, Flags, Remote, Sge};
use verbena_wire::cell::PortAddress;
use verbena_wire::number::Qpn;

/// A work queue pair, anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its port.
    pub port: PortAddress,
    /// Its number there.
    pub wqp: Qpn,
}

/// What a descriptor of the send queue asks for. Those of the receive queue are [`verbena_nic::ReceiveWr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A packet into the next receive there.
    Send,
    /// A packet into memory there.
    Write,
}

/// The control segment. The status that the source keeps here, too, comes as a completion with the same `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlSegment {
    /// The consumer's own number, returned with the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// Immediate data; with a write it consumes a receive there.
    pub immediate: Option<u32>,
    /// `SIGNALED`, `SOLICITED` and `NOTIFY` mean what they mean for other queue pairs; fences wait for nothing.
    pub flags: Flags,
}

/// The address segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSegment {
    /// Where a write goes: address and memory handle.
    pub remote: Option<Remote>,
    /// Where a connectionless packet goes.
    pub destination: Option<Peer>,
}

/// A descriptor for the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// What.
    pub control: ControlSegment,
    /// Where to: a write and a connectionless packet need it.
    pub address: Option<AddressSegment>,
    /// Which bytes.
    pub data: Data<'a>,
}

const FEW_PIECES: usize = 2;
const FEW_BYTES: usize = 64;

/// Where a descriptor's bytes are, as the queue keeps it.
#[derive(Debug)]
pub(crate) enum Payload {
    Gather(SmallVec<[Sge; FEW_PIECES]>),
    Inline(SmallVec<[u8; FEW_BYTES]>),
}

impl From<Data<'_>> for Payload {
    fn from(data: Data<'_>) -> Payload {
        match data {
            Data::Gather(sges) => Payload::Gather(sges.into()),
            Data::Inline(bytes) => Payload::Inline(bytes.into()),
        }
    }
}
