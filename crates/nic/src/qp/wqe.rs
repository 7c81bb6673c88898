//! A queued send request: a copy of the program's, with its progress.
//! It knows which messages it takes and which of them the peer must still execute. Memory is not accessed here.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use verbena_stream::Message;
use verbena_wire::Rsn;
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, Immediate, ReadRequest};
use verbena_wire::{Srqn, Stag, To};

use super::pending_faults::SendFault;
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, SendOp, SendWr, Sge};

/// Lists and inline data up to this size are stored in the queue itself.
const INLINE_SGES: usize = 2;
const INLINE_BYTES: usize = 64;

/// A request's data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Payload {
    Gather(SmallVec<[Sge; INLINE_SGES]>),
    Inline(SmallVec<[u8; INLINE_BYTES]>),
}

/// Progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Progress {
    /// Not begun, or to be begun again with this part.
    Waiting { part: u8 },
    /// This part is being sent.
    Sending { part: u8 },
    /// All parts are framed; the last byte is at this offset of the stream.
    Sent { end: u64 },
    /// Ended.
    Done(Status),
    /// Posted with a fault that was injected, and not taken in yet. Not moved: a migration takes in what was posted.
    #[serde(skip)]
    Injected(SendFault),
}

/// A send request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wqe {
    pub(crate) id: u64,
    pub(super) op: SendOp,
    pub(crate) flags: Flags,
    /// The peer's shared receive queue that it names, with [`Flags::NAMES_SRQ`]. Not moved: an XRC queue pair is not migrated.
    #[serde(skip)]
    pub(super) srqn: Srqn,
    pub(super) payload: Payload,
    pub(crate) len: u32,
    pub(super) progress: Progress,
    /// The request sequence numbers of its parts, once begun.
    pub(super) rsn: [Option<Rsn>; 2],
}

/// The peer's features that affect messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerFeatures {
    pub(super) read_v2: bool,
    pub(super) send_imm: bool,
}

impl Wqe {
    #[inline]
    pub(super) fn new(wr: &SendWr<'_>, len: u32) -> Wqe {
        Wqe::with_progress(wr, len, Progress::Waiting { part: 0 })
    }

    #[inline]
    pub(super) fn with_progress(wr: &SendWr<'_>, len: u32, progress: Progress) -> Wqe {
        Wqe {
            id: wr.id,
            op: wr.op,
            flags: wr.flags,
            srqn: Srqn::default(),
            payload: match wr.data {
                Data::Gather(sges) => Payload::Gather(SmallVec::from_slice(sges)),
                Data::Inline(bytes) => Payload::Inline(SmallVec::from_slice(bytes)),
            },
            len,
            progress,
            rsn: [None; 2],
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done(_))
    }

    pub(crate) fn wc_op(&self) -> WcOp {
        self.op.wc_op()
    }

    /// Messages it takes. A Write of zero bytes with immediate data is the immediate data alone.
    pub(super) fn parts(&self, peer: PeerFeatures) -> u8 {
        match self.op {
            SendOp::Write {
                immediate: Some(_), ..
            } if self.len > 0 => 2,
            // V7: for a peer that supports only RFC 7306, the immediate data is a message of its own.
            SendOp::Send {
                immediate: Some(_), ..
            } if !peer.send_imm => 2,
            _ => 1,
        }
    }

    /// The message of one part. `id` is a number that a response must echo.
    pub(super) fn message(&self, part: u8, peer: PeerFeatures, id: u32) -> Option<Message> {
        let solicited = self.flags.contains(Flags::SOLICITED);
        let last = part + 1 == self.parts(peer);
        let len = self.len;
        Some(match self.op {
            SendOp::Send {
                invalidate,
                immediate,
            } => match immediate.map(Immediate::from_imm) {
                Some(immediate) if peer.send_imm => Message::SendImm {
                    solicited,
                    invalidate,
                    immediate,
                    len,
                },
                Some(data) if part == 1 => Message::Immediate { solicited, data },
                _ => Message::Send {
                    solicited: solicited && last,
                    invalidate,
                    len,
                },
            },
            SendOp::Write { remote, immediate } => match immediate {
                Some(immediate) if part == 1 || len == 0 => Message::Immediate {
                    solicited,
                    data: Immediate::from_imm(immediate),
                },
                _ => Message::Write {
                    stag: remote.stag,
                    to: remote.to,
                    len,
                },
            },
            SendOp::Read { remote, .. } if peer.read_v2 => Message::ReadV2Request(ReadV2Request {
                size: len,
                source_stag: remote.stag,
                source_to: remote.to,
            }),
            // V3: for a standard peer the sink is named by a number that gives access to no memory; the response is placed
            // because it matches the request, not because of the number.
            SendOp::Read { remote, .. } => Message::ReadRequest(ReadRequest {
                sink_stag: Stag::new(id),
                sink_to: To::new(0),
                size: len,
                source_stag: remote.stag,
                source_to: remote.to,
            }),
            SendOp::FetchAdd { remote, add, mask } => Message::AtomicRequest(AtomicRequest {
                op: AtomicOp::FetchAdd { add, mask },
                id,
                stag: remote.stag,
                to: remote.to,
            }),
            SendOp::CmpSwap {
                remote,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => Message::AtomicRequest(AtomicRequest {
                op: AtomicOp::CmpSwap {
                    swap,
                    swap_mask,
                    compare,
                    compare_mask,
                },
                id,
                stag: remote.stag,
                to: remote.to,
            }),
            SendOp::AtomicWrite { remote } => Message::AtomicRequest(AtomicRequest {
                op: AtomicOp::Write {
                    bytes: self.loaded_word()?,
                },
                id,
                stag: remote.stag,
                to: remote.to,
            }),
            SendOp::Flush { remote, scope } => Message::AtomicRequest(AtomicRequest {
                op: AtomicOp::Flush(scope),
                id,
                stag: remote.stag,
                to: remote.to,
            }),
            SendOp::Bind(_)
            | SendOp::LocalInvalidate(_)
            | SendOp::Register(_)
            | SendOp::RegisterSend { .. } => return None,
        })
    }

    /// Its data in memory is part of its header and must be loaded before its message is made.
    pub(super) fn must_load_word(&self) -> bool {
        matches!(self.op, SendOp::AtomicWrite { .. }) && matches!(self.payload, Payload::Gather(_))
    }

    /// The data of an Atomic Write was read. It is sent with these bytes, also if it is sent again.
    pub(super) fn load_word(&mut self, bytes: [u8; 8]) {
        self.payload = Payload::Inline(SmallVec::from_slice(&bytes));
    }

    fn loaded_word(&self) -> Option<[u8; 8]> {
        match &self.payload {
            Payload::Inline(bytes) => bytes[..].try_into().ok(),
            Payload::Gather(_) => None,
        }
    }

    /// The number of its last begun part.
    pub(super) fn last_rsn(&self) -> Option<Rsn> {
        self.rsn[1].or(self.rsn[0])
    }

    /// A part of it found no receive, or is behind one that did.
    pub(super) fn is_refused(&self, n: Rsn) -> bool {
        self.rsn.iter().flatten().any(|rsn| !rsn.is_before(n))
    }

    /// The peer discarded everything from `n` on: resets the part that must be begun again; false if there is none.
    pub(super) fn rewind(&mut self, n: Rsn) -> bool {
        let refused = |rsn: Option<Rsn>| rsn.is_some_and(|rsn| !rsn.is_before(n));
        let part = match self.rsn {
            [first, _] if refused(first) => 0,
            [_, second] if refused(second) => 1,
            _ => return false,
        };
        for slot in &mut self.rsn[usize::from(part)..] {
            *slot = None;
        }
        self.progress = Progress::Waiting { part };
        true
    }
}
