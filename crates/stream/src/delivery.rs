//! What the receive side tells its caller: where bytes go ([`Step::Place`]) and what has arrived ([`Delivery`]).
//! It promises that everything a peer can lawfully say has exactly one word here.
//! It refuses to know memory: places are STags, receives and outstanding reads, never addresses.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Caps, PathKind, ReadV2Request, RnrTimer};
use verbena_wire::number::Psn;
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, ReadRequest, Terminate,
};
use verbena_wire::{Msn, Rsn, Stag, To};

use crate::reads::ReadOut;

/// What the receive side wants next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The stage must hold at least this many bytes, counted from its front after what was consumed.
    More(usize),
    /// A message wants a receive: answer with [`crate::Stream::claim`].
    Claim {
        /// The message's number on queue 0.
        msn: Msn,
        /// What it is.
        opcode: Opcode,
    },
    /// The next `len` bytes of the stream belong there: move them, then say [`crate::Stream::placed`].
    Place(Run),
    /// Something has arrived in full.
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
    /// An RDMA Write: memory the peer may write.
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
    /// Nowhere.
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
    /// A receive of this many bytes takes the message; should the message prove longer, the stream ends, or drops it
    /// where [`Settings`](crate::Settings) say so.
    Granted {
        /// Bytes it can hold.
        capacity: u32,
    },
    /// No receive is posted: tell the peer to wait. Only where extensions are in force.
    NotReady {
        /// The hint for the peer's patience.
        timer: RnrTimer,
    },
    /// Throw the message away (unreliable connections).
    Drop,
}

/// Something that has arrived in full and in order.
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
    /// The peer asks for data.
    ReadRequest {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header, for a Terminate should the read fail later.
        header: Untagged,
        /// What it asks.
        request: ReadRequest,
    },
    /// The peer asks for data by Read V2.
    ReadV2Request {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header.
        header: Untagged,
        /// What it asks.
        request: ReadV2Request,
    },
    /// The peer asks for an atomic operation.
    AtomicRequest {
        /// Its number among requests.
        rsn: Rsn,
        /// Its DDP header.
        header: Untagged,
        /// What it asks.
        request: AtomicRequest,
    },
    /// Our oldest read is complete in its sink.
    ReadDone(ReadOut),
    /// Our oldest atomic is answered.
    AtomicDone(ReadOut, AtomicResponse),
    /// A request that is being discarded until RESUME, or that was dropped. A receive that was granted to a dropped one
    /// is not consumed: its bytes may be overwritten, and the caller gives it to another message.
    Discarded(Opcode),
    /// The peer ended the stream and says why.
    Terminate(Terminate, Dialect),
    /// The ready-to-receive message, or its answer.
    Rtr,
    /// The peer's capabilities.
    Caps(Caps),
    /// All our requests before this one are executed.
    Acked(Rsn),
    /// The peer had no receive for this request; sending pauses.
    Rnr(Rsn),
    /// The peer is ready again: send from this request on.
    Ready(Rsn),
    /// The peer goes on with this request.
    Resumed(Rsn),
    /// The peer's queue pair sends now.
    Active(Psn),
    /// The peer moves the stream to another path at this request.
    Path(Rsn, PathKind),
}
