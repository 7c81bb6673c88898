//! Work requests: what a program may post to a queue pair (M16).
//! They borrow the caller's lists; posting copies them into the queue, so they may be reused at once. Whether a request is valid on a
//! queue pair is decided where it is posted.

use core::ops::BitOr;
use serde::{Deserialize, Serialize};

use verbena_mem::{Bind, Ticket};
use verbena_wire::rdmap::FlushScope;
use verbena_wire::{Stag, To};

use crate::wc::WcOp;

/// A piece of local memory: gather from it, or scatter to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sge {
    /// Its first byte, as an address in the region.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The region.
    pub stag: Stag,
}

/// The peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAddr {
    /// The peer's region or window.
    pub stag: Stag,
    /// The address in it.
    pub to: To,
}

/// The operation of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendOp {
    /// A message into the peer's next receive.
    Send {
        /// The peer's entry to invalidate on arrival (M11).
        invalidate: Option<Stag>,
        /// Immediate data (V7).
        immediate: Option<u32>,
    },
    /// Data into the peer's memory.
    Write {
        /// Where.
        remote: RemoteAddr,
        /// Immediate data, which consumes a receive at the peer.
        immediate: Option<u32>,
    },
    /// Data from the peer's memory.
    Read {
        /// From where.
        remote: RemoteAddr,
        /// A local entry to invalidate once the data is here.
        local_invalidate: Option<Stag>,
    },
    /// Adds to a word of the peer's memory and returns the previous value (M15).
    FetchAdd {
        /// The word.
        remote: RemoteAddr,
        /// What to add.
        add: u64,
        /// Field boundaries; 0 for one 64-bit field.
        mask: u64,
    },
    /// Compares a word of the peer's memory and swaps it if equal; returns the previous value (M15).
    CmpSwap {
        /// The word.
        remote: RemoteAddr,
        /// The expected value.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that are written.
        swap_mask: u64,
    },
    /// Writes the eight bytes of the request's data to an aligned word of the peer's memory, atomically and after all earlier requests.
    AtomicWrite {
        /// The word.
        remote: RemoteAddr,
    },
    /// Completes when all earlier writes of this queue pair to the memory are visible to everything that accesses it.
    Flush {
        /// The memory, or the beginning of the range.
        remote: RemoteAddr,
        /// How much of it.
        scope: FlushScope,
    },
    /// Binds a local window (M8).
    #[serde(skip)]
    Bind(Bind),
    /// Invalidates a local entry.
    LocalInvalidate(Stag),
    /// Executes a prepared registration (M4): later requests of this queue may use its STag already when they are posted.
    #[serde(skip)]
    Register(Ticket),
    /// The same, and then a message into the peer's next receive (M11). If the registration fails, nothing is sent.
    #[serde(skip)]
    RegisterSend {
        /// The registration.
        ticket: Ticket,
        /// As for a Send.
        invalidate: Option<Stag>,
        /// As for a Send.
        immediate: Option<u32>,
    },
}

impl SendOp {
    /// The operation in its completion.
    pub(crate) fn wc_op(&self) -> WcOp {
        match self {
            SendOp::Send { .. } => WcOp::Send,
            SendOp::Write { .. } => WcOp::Write,
            SendOp::Read { .. } => WcOp::Read,
            SendOp::FetchAdd { .. } => WcOp::FetchAdd,
            SendOp::CmpSwap { .. } => WcOp::CompSwap,
            SendOp::AtomicWrite { .. } => WcOp::AtomicWrite,
            SendOp::Flush { .. } => WcOp::Flush,
            SendOp::Bind(_) => WcOp::Bind,
            SendOp::LocalInvalidate(_) => WcOp::LocalInvalidate,
            // M11: it becomes a Send when its registration is done.
            SendOp::Register(_) | SendOp::RegisterSend { .. } => WcOp::Register,
        }
    }

    /// It waits for the peer's response and takes a slot of the read depth.
    pub fn wants_response(&self) -> bool {
        self.has_sink() || matches!(self, SendOp::AtomicWrite { .. } | SendOp::Flush { .. })
    }

    /// Its data is written by the peer's response.
    pub fn has_sink(&self) -> bool {
        matches!(
            self,
            SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. }
        )
    }

    /// It is an Atomic Request on the wire.
    pub fn is_atomic(&self) -> bool {
        self.wants_response() && !matches!(self, SendOp::Read { .. })
    }

    /// The length that its data must have, if there is only one.
    pub fn fixed_len(&self) -> Option<u32> {
        match self {
            SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } | SendOp::AtomicWrite { .. } => {
                Some(8)
            }
            SendOp::Flush { .. } => Some(0),
            op if op.is_local() => Some(0),
            _ => None,
        }
    }

    /// It is executed without the peer.
    pub fn is_local(&self) -> bool {
        matches!(
            self,
            SendOp::Bind(_) | SendOp::LocalInvalidate(_) | SendOp::Register(_)
        )
    }

    /// Its data may be given inline.
    pub fn takes_inline(&self) -> bool {
        matches!(
            self,
            SendOp::Send { .. }
                | SendOp::Write { .. }
                | SendOp::RegisterSend { .. }
                | SendOp::AtomicWrite { .. }
        )
    }
}

/// Options of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Flags(u8);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Completes with an entry in the completion queue also on success.
    pub const SIGNALED: Flags = Flags(1);
    /// Raises a solicited event at the peer.
    pub const SOLICITED: Flags = Flags(2);
    /// Waits for all earlier reads and atomics.
    pub const FENCE: Flags = Flags(4);
    /// Waits for all earlier work of this queue.
    pub const LOCAL_FENCE: Flags = Flags(8);
    /// Completes with an entry and raises an event for it even if the completion queue is not armed (N7).
    pub const NOTIFY: Flags = Flags(16);
    /// It names a shared receive queue of the peer (XRC). Set when it is posted.
    pub(crate) const NAMES_SRQ: Flags = Flags(32);

    /// Without the flags of `other`.
    pub(crate) const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// All flags of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A request for the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// The program's id, returned with the completion.
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// Options.
    pub flags: Flags,
    /// The data.
    pub data: Data<'a>,
}

/// Where a request's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// In registered memory.
    Gather(&'a [Sge]),
    /// In this slice; copied when posted, no region needed (V4).
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// Bytes; `None` beyond 2^32 − 1.
    pub fn len(&self) -> Option<u32> {
        match self {
            Data::Gather(sges) => sges.iter().try_fold(0_u32, |sum, s| sum.checked_add(s.len)),
            Data::Inline(bytes) => u32::try_from(bytes.len()).ok(),
        }
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// A request for a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWr<'a> {
    /// The program's id, returned with the completion.
    pub id: u64,
    /// Where a message goes.
    pub scatter: &'a [Sge],
}
