//! What a program can ask of an adapter, and what the adapter tells it: work, receives and reports.
//! Checkers judge a run by these words alone, so they promise to say everything that a program could notice.
//! They refuse to know wire formats beyond the names that verbs expose.

use verbena_stream::{Outcome, Violation};
use verbena_wire::rdmap::{AtomicOp, Cause, Immediate, Opcode};
use verbena_wire::{Rsn, Stag, To};

/// A buffer of the peer, or of our own, that a work request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
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
        /// Where it goes.
        at: Spot,
        /// What goes there.
        payload: Vec<u8>,
        /// Immediate data behind it: a second message that consumes a receive.
        immediate: Option<Immediate>,
    },
    /// A Send.
    Send {
        /// What is sent.
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
        source: Spot,
        /// Our buffer.
        sink: Spot,
        /// Bytes.
        len: u32,
        /// Without naming the sink on the wire (docs/extensions.md).
        v2: bool,
    },
    /// An atomic operation on eight bytes.
    Atomic {
        /// The peer's word.
        at: Spot,
        /// What to do.
        op: AtomicOp,
    },
}

impl Work {
    /// It takes one of the peer's receives.
    pub fn wants_receive(&self) -> bool {
        match self {
            Work::Write { immediate, .. } => immediate.is_some(),
            Work::Send { .. } => true,
            Work::Read { .. } | Work::Atomic { .. } => false,
        }
    }

    /// It waits for data from the peer.
    pub fn wants_response(&self) -> bool {
        matches!(self, Work::Read { .. } | Work::Atomic { .. })
    }

    /// Payload bytes it moves, either way.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Write { payload, .. } | Work::Send { payload, .. } => payload.len(),
            Work::Read { len, .. } => *len as usize,
            Work::Atomic { .. } => 8,
        }
    }
}

/// How a work request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The peer has executed it.
    Acked,
    /// The peer has executed it; the word was this before.
    Fetched(u64),
    /// The link has taken its bytes, and a standard peer says no more than that.
    Accepted,
    /// The peer refused it and ended the stream.
    Refused(Cause),
    /// The peer had no receive for longer than allowed.
    RnrExceeded,
    /// The stream ended first.
    Flushed,
    /// The peer does not take this kind of work; nothing was sent.
    Unsupported,
}

impl Status {
    /// The work was done, as far as can be known.
    pub fn is_success(self) -> bool {
        matches!(self, Status::Acked | Status::Fetched(_) | Status::Accepted)
    }
}

/// A message that consumed a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Which receive, as it was numbered when it was supplied.
    pub receive: u64,
    /// What came.
    pub opcode: Opcode,
    /// Payload bytes in the receive.
    pub len: u32,
    /// Immediate data.
    pub immediate: Option<Immediate>,
    /// An STag of ours that is no longer valid.
    pub invalidated: Option<Stag>,
    /// Length of the Write directly before an Immediate.
    pub write_len: Option<u32>,
}

/// Something an adapter tells its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The startup is over and the stream begins.
    Established {
        /// Requests are acknowledged; both sides speak docs/extensions.md.
        extensions: bool,
        /// Checksums are on.
        crc: bool,
        /// What the peer's program had to say.
        private_data: Vec<u8>,
    },
    /// The startup did not lead to a stream.
    NotEstablished(Outcome),
    /// Work request `0` ended.
    Completed(u64, Status),
    /// A message consumed a receive.
    Received(Received),
    /// We had no receive for the peer's request; it must wait.
    NotReady,
    /// The peer had no receive for our request.
    Rnr(Rsn),
    /// The peer is ready for our request again.
    Ready(Rsn),
    /// The peer broke a rule, and was told.
    Violation(Violation),
    /// The peer ended the stream for this reason.
    Terminated(Cause),
    /// The connection is over; true if it ended between two messages.
    Closed(bool),
}
