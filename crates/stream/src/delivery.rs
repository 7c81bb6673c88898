//! What the receive side returns to its caller: where bytes go ([`Step::Place`]) and what has arrived ([`Delivery`]).
//! Every valid message of a peer is one variant. Places are STags, receives and outstanding reads, not addresses.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Caps, ReadV2Request, RnrTimer};
use verbena_wire::number::Psn;
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, ReadRequest, Terminate,
};
use verbena_wire::{Msn, Rsn, Srqn, Stag, To};

use crate::reads::ReadOut;

/// What the receive side needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The stage must hold at least this many bytes, counted from its front after what was consumed.
    More(usize),
    /// A message needs a receive: answer with [`crate::Stream::claim`].
    Claim {
        /// The message's number on queue 0.
        msn: Msn,
        /// What it is.
        opcode: Opcode,
    },
    /// The next `len` bytes of the stream belong there: copy them, then call [`crate::Stream::placed`].
    Place(Run),
    /// A message has arrived in full.
    Deliver(Delivery),
}

/// Consecutive payload bytes and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where the first byte goes.
    pub place: Place,
    /// How many there are.
    pub len: u32,
}

/// Where payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// An RDMA Write: memory of an STag.
    Write {
        /// The buffer.
        stag: Stag,
        /// The address in it.
        to: To,
    },
    /// The claimed receive, at this offset of the message.
    Receive {
        /// Bytes from the message's start.
        offset: u32,
    },
    /// The oldest outstanding read, at this offset of the response.
    Sink {
        /// Bytes from the response's start.
        offset: u32,
    },
    /// Not kept.
    Discard,
}

impl Place {
    /// The place `n` bytes further on.
    pub(crate) fn forward(self, n: u32) -> Place {
        match self {
            Place::Write { stag, to } => Place::Write {
                stag,
                to: to.checked_add(u64::from(n)).unwrap_or(to),
            },
            Place::Receive { offset } => Place::Receive {
                offset: offset.saturating_add(n),
            },
            Place::Sink { offset } => Place::Sink {
                offset: offset.saturating_add(n),
            },
            Place::Discard => Place::Discard,
        }
    }
}

/// The answer to [`Step::Claim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A receive of this many bytes takes the message; if the message is longer, the stream fails, or drops it
    /// where [`Settings`](crate::Settings) say so.
    Granted {
        /// Bytes it can hold.
        capacity: u32,
    },
    /// No receive is posted: the peer gets RNR. Without extensions the stream fails.
    NotReady {
        /// The timer of the RNR.
        timer: RnrTimer,
    },
    /// Drop the message (unreliable connections).
    Drop,
}

/// A message that has arrived in full and in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// A Send, complete in its receive.
    Send {
        /// Its number among requests.
        rsn: Rsn,
        /// Which kind of Send.
        opcode: Opcode,
        /// Payload bytes.
        len: u32,
        /// The STag to invalidate, for the kinds that do.
        invalidate: Option<Stag>,
        /// Immediate data, for the kinds that carry it.
        immediate: Option<Immediate>,
    },
    /// Immediate data (RFC 7306 §6.3), which consumed a receive.
    Immediate {
        /// Its number among requests.
        rsn: Rsn,
        /// With or without solicited event.
        opcode: Opcode,
        /// The eight bytes.
        data: Immediate,
        /// Length of the Write directly before it, if one was.
        write_len: Option<u32>,
    },
    /// An RDMA Write is placed.
    Write {
        /// Its number among requests.
        rsn: Rsn,
        /// The buffer.
        stag: Stag,
        /// Its length.
        len: u32,
    },
    /// A Read Request.
    ReadRequest {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header, for a Terminate should the read fail later.
        header: Untagged,
        /// The request.
        request: ReadRequest,
    },
    /// A Read V2 Request.
    ReadV2Request {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header.
        header: Untagged,
        /// The request.
        request: ReadV2Request,
    },
    /// An Atomic Request.
    AtomicRequest {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header.
        header: Untagged,
        /// The request.
        request: AtomicRequest,
    },
    /// The oldest read of this side is complete in its sink.
    ReadDone(ReadOut),
    /// The oldest atomic of this side is answered.
    AtomicDone(ReadOut, AtomicResponse),
    /// A request that was discarded until RESUME, or that was dropped. A receive that was granted to a dropped one
    /// is not consumed: its bytes may be overwritten, and the caller uses it for another message.
    Discarded(Opcode),
    /// The peer ended the stream with this Terminate.
    Terminate(Terminate, Dialect),
    /// The ready-to-receive message, or the response to it.
    Rtr,
    /// The peer's capabilities.
    Caps(Caps),
    /// All requests of this side before this one are executed.
    Acked(Rsn),
    /// The peer had no receive for this request; sending pauses.
    Rnr(Rsn),
    /// The peer is ready again: send from this request on.
    Ready(Rsn),
    /// The peer continues with this request.
    Resumed(Rsn),
    /// The peer's queue pair is in RTS.
    Active(Psn),
    /// The peer's next requests are for this shared receive queue (XRC).
    Srq(Srqn),
}
