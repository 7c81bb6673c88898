//! A request to send: its kind, its length and its packets.
//! A packet is named by its place in the message, so that a repetition makes the same packet again.

use verbena_wire::roce::{AtomicEth, Immediate, Operation, Reth, Service, Tail};
use verbena_wire::{Stag, To};

use crate::settings::Mtu;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A Send.
    Send {
        /// Bytes.
        len: u32,
        /// What its last packet carries.
        tail: Tail,
        /// With a solicited event.
        solicited: bool,
    },
    /// An RDMA Write.
    Write {
        /// The address in the peer's memory.
        va: To,
        /// The peer's memory.
        rkey: Stag,
        /// Bytes.
        len: u32,
        /// Immediate data, which consumes a receive of the peer.
        immediate: Option<Immediate>,
        /// With a solicited event; only with immediate data.
        solicited: bool,
    },
    /// An RDMA Read.
    Read {
        /// The address in the peer's memory.
        va: To,
        /// The peer's memory.
        rkey: Stag,
        /// Bytes.
        len: u32,
    },
    /// Compare and swap.
    CmpSwap(AtomicEth),
    /// Fetch and add.
    FetchAdd(AtomicEth),
}

/// A packet of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) operation: Operation,
    /// The bytes of the request's payload that it carries.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) solicited: bool,
}

impl Message {
    /// Bytes that the request moves.
    pub fn len(&self) -> u32 {
        match *self {
            Message::Send { len, .. } | Message::Write { len, .. } | Message::Read { len, .. } => {
                len
            }
            Message::CmpSwap(_) | Message::FetchAdd(_) => 8,
        }
    }

    /// It moves no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// It is answered with data, and takes one of the initiator's depth.
    pub fn wants_response(&self) -> bool {
        matches!(
            self,
            Message::Read { .. } | Message::CmpSwap(_) | Message::FetchAdd(_)
        )
    }

    /// It consumes a receive of the peer.
    pub fn consumes_receive(&self) -> bool {
        match self {
            Message::Send { .. } => true,
            Message::Write { immediate, .. } => immediate.is_some(),
            Message::Read { .. } | Message::CmpSwap(_) | Message::FetchAdd(_) => false,
        }
    }

    /// Packet sequence numbers that it takes: its own packets, or those of its response.
    pub(crate) fn psns(&self, mtu: Mtu) -> u32 {
        match self {
            Message::CmpSwap(_) | Message::FetchAdd(_) => 1,
            _ => mtu.packets(self.len()),
        }
    }

    /// The packet with number `at` of its sequence. For a Read it is the request for `psns` packets of the response from there on.
    pub(crate) fn segment(&self, service: Service, mtu: Mtu, at: u32, psns: u32) -> Segment {
        let offset = at.saturating_mul(mtu.bytes()).min(self.len());
        let left = self.len() - offset;
        let is_first = at == 0;
        let is_last = left <= mtu.bytes();
        let operation = match *self {
            Message::Send { tail, .. } => match (is_first, is_last) {
                (true, true) => Operation::SendOnly(service, tail),
                (true, false) => Operation::SendFirst(service),
                (false, false) => Operation::SendMiddle(service),
                (false, true) => Operation::SendLast(service, tail),
            },
            Message::Write {
                va,
                rkey,
                len,
                immediate,
                ..
            } => {
                let reth = Reth { va, rkey, len };
                match (is_first, is_last) {
                    (true, true) => Operation::WriteOnly(service, reth, immediate),
                    (true, false) => Operation::WriteFirst(service, reth),
                    (false, false) => Operation::WriteMiddle(service),
                    (false, true) => Operation::WriteLast(service, immediate),
                }
            }
            Message::Read { va, rkey, .. } => Operation::ReadRequest(Reth {
                va: To::new(va.get().wrapping_add(u64::from(offset))),
                rkey,
                len: left.min(psns.saturating_mul(mtu.bytes())),
            }),
            Message::CmpSwap(atomic) => Operation::CmpSwap(atomic),
            Message::FetchAdd(atomic) => Operation::FetchAdd(atomic),
        };
        let solicited = match *self {
            Message::Send { solicited, .. } => solicited && is_last,
            Message::Write {
                solicited,
                immediate,
                ..
            } => solicited && is_last && immediate.is_some(),
            _ => false,
        };
        Segment {
            operation,
            offset,
            len: if self.wants_response() {
                0
            } else {
                left.min(mtu.bytes())
            },
            solicited,
        }
    }
}
