//! What a program can request from an adapter, and what the adapter reports: work, receives and reports.
//! The checkers have nothing but these, so they include everything that a program could notice.

use verbena_stream::{Outcome, Violation};
use verbena_wire::rdmap::{AtomicOp, Cause, Immediate, Opcode};
use verbena_wire::{Rsn, Stag, To};

/// A location that a work request names, of the peer or local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaggedAddr {
    /// The region.
    pub stag: Stag,
    /// The address in it.
    pub to: To,
}

/// A work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// RDMA Write, with immediate data or without.
    Write {
        /// The destination.
        at: TaggedAddr,
        /// The bytes.
        payload: Vec<u8>,
        /// Immediate data behind it: a second message that consumes a receive.
        immediate: Option<Immediate>,
    },
    /// A Send.
    Send {
        /// The bytes.
        payload: Vec<u8>,
        /// With a solicited event.
        solicited: bool,
        /// The peer's STag to invalidate.
        invalidate: Option<Stag>,
        /// Immediate data inside it.
        immediate: Option<Immediate>,
    },
    /// RDMA Read.
    Read {
        /// The peer's buffer.
        source: TaggedAddr,
        /// The local buffer.
        sink: TaggedAddr,
        /// Bytes.
        len: u32,
        /// Without the sink on the wire (docs/extensions.md).
        v2: bool,
    },
    /// An atomic operation on eight bytes.
    Atomic {
        /// The peer's word.
        at: TaggedAddr,
        /// The operation.
        op: AtomicOp,
    },
}

impl Work {
    /// Whether it consumes a receive of the peer.
    pub fn wants_receive(&self) -> bool {
        match self {
            Work::Write { immediate, .. } => immediate.is_some(),
            Work::Send { .. } => true,
            Work::Read { .. } | Work::Atomic { .. } => false,
        }
    }

    /// Whether it has a response.
    pub fn wants_response(&self) -> bool {
        matches!(self, Work::Read { .. } | Work::Atomic { .. })
    }

    /// Payload bytes that it moves, in either direction.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Write { payload, .. } | Work::Send { payload, .. } => payload.len(),
            Work::Read { len, .. } => *len as usize,
            Work::Atomic { .. } => 8,
        }
    }
}

/// The status of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The peer has executed it.
    Acked,
    /// The peer has executed it; the word was this before.
    Fetched(u64),
    /// The link has accepted its bytes; a standard peer reports no more.
    Accepted,
    /// The peer refused it and ended the stream.
    Refused(Cause),
    /// The peer had no receive for longer than allowed.
    RnrExceeded,
    /// The stream ended first.
    Flushed,
    /// The peer does not support this kind of work; nothing was sent.
    Unsupported,
}

impl Status {
    /// Whether the work was done, as far as can be known.
    pub fn is_success(self) -> bool {
        matches!(self, Status::Acked | Status::Fetched(_) | Status::Accepted)
    }
}

/// A message that consumed a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The number of the receive.
    pub receive: u64,
    /// The kind of message.
    pub opcode: Opcode,
    /// Payload bytes in the receive.
    pub len: u32,
    /// Immediate data.
    pub immediate: Option<Immediate>,
    /// The local STag that was invalidated.
    pub invalidated: Option<Stag>,
    /// Length of the Write directly before an Immediate.
    pub write_len: Option<u32>,
}

/// A report of an adapter to its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The startup is over and the stream begins.
    Established {
        /// Requests are acknowledged; both sides use docs/extensions.md.
        extensions: bool,
        /// Checksums are on.
        crc: bool,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The startup did not lead to a stream.
    NotEstablished(Outcome),
    /// Work request `0` ended.
    Completed(u64, Status),
    /// A message consumed a receive.
    Received(Received),
    /// There was no receive for the peer's request; it must wait.
    NotReady,
    /// The peer had no receive for a request of this side.
    Rnr(Rsn),
    /// The peer is ready for that request again.
    Ready(Rsn),
    /// The peer violated the protocol, and was told.
    Violation(Violation),
    /// The peer ended the stream for this reason.
    Terminated(Cause),
    /// The connection is over; true if it ended between two messages.
    Closed(bool),
}
