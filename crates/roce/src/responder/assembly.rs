//! How packets make up messages: which step the expected packet is, given the message that is arriving.
//! Nothing is changed here: the outcome says what the execution of the packet will change, and a packet that does not continue the
//! message, or has a wrong length, is a [`Violation`].

use verbena_wire::To;
use verbena_wire::roce::{Operation, Packet, Psn, Reth};

use super::{Atomic, MAX_MESSAGE, RequestStep, Responder, SendEnd, Violation, WriteEnd};

/// The message that is arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Send {
        offset: u32,
    },
    Write {
        reth: Reth,
        offset: u32,
    },
    /// The rest of a message that an unreliable connection drops.
    Dropped,
}

/// A packet that was handled and not yet reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) psn: Psn,
    pub(super) psns: u32,
    pub(super) ack_request: bool,
    /// What is left of the message.
    pub(super) next: Option<Begun>,
    pub(super) ends_message: bool,
    pub(super) read: Option<Reth>,
}

impl Responder {
    /// The step of the expected packet, and what its execution changes.
    pub(super) fn next_step(
        &self,
        packet: &Packet<'_>,
    ) -> Result<(RequestStep, Pending), Violation> {
        let mut pending = Pending {
            psn: packet.psn,
            psns: 1,
            ack_request: packet.ack_request,
            next: None,
            ends_message: false,
            read: None,
        };
        // The payload of a UDP datagram: far below 32 bits.
        let len = packet.payload.len() as u32;
        let mtu = self.mtu.bytes();
        let is_whole = |last: bool| match last {
            false => len == mtu,
            true => len <= mtu,
        };
        let solicited = packet.solicited;
        let step = match (packet.operation, self.begun) {
            (
                Operation::SendMiddle(_)
                | Operation::SendLast(..)
                | Operation::WriteMiddle(_)
                | Operation::WriteLast(..),
                Some(Begun::Dropped),
            ) => {
                let is_last = matches!(
                    packet.operation,
                    Operation::SendLast(..) | Operation::WriteLast(..)
                );
                pending.next = (!is_last).then_some(Begun::Dropped);
                RequestStep::Nothing
            }
            (Operation::SendFirst(_) | Operation::SendOnly(..), None) => {
                let tail = match packet.operation {
                    Operation::SendOnly(_, tail) => Some(tail),
                    _ => None,
                };
                check(is_whole(tail.is_some()), Violation::PacketLength)?;
                pending.ends_message = tail.is_some();
                pending.next = tail.is_none().then_some(Begun::Send { offset: len });
                RequestStep::Receive {
                    is_first: true,
                    offset: 0,
                    end: tail.map(|tail| SendEnd {
                        len,
                        tail,
                        solicited,
                    }),
                }
            }
            (Operation::SendMiddle(_) | Operation::SendLast(..), Some(Begun::Send { offset })) => {
                let tail = match packet.operation {
                    Operation::SendLast(_, tail) => Some(tail),
                    _ => None,
                };
                check(is_whole(tail.is_some()), Violation::PacketLength)?;
                check(tail.is_none() || len > 0, Violation::PacketLength)?;
                let end = offset + len;
                check(end <= MAX_MESSAGE, Violation::MessageLength)?;
                pending.ends_message = tail.is_some();
                pending.next = tail.is_none().then_some(Begun::Send { offset: end });
                RequestStep::Receive {
                    is_first: false,
                    offset,
                    end: tail.map(|tail| SendEnd {
                        len: end,
                        tail,
                        solicited,
                    }),
                }
            }
            (Operation::WriteFirst(_, reth), None) => {
                check(is_whole(false), Violation::PacketLength)?;
                let fits = len < reth.len && reth.len <= MAX_MESSAGE;
                check(fits, Violation::MessageLength)?;
                pending.next = Some(Begun::Write { reth, offset: len });
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: reth.va,
                    message: Some(reth),
                    end: None,
                }
            }
            (Operation::WriteOnly(_, reth, immediate), None) => {
                check(is_whole(true), Violation::PacketLength)?;
                check(len == reth.len, Violation::MessageLength)?;
                pending.ends_message = true;
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: reth.va,
                    message: Some(reth),
                    end: Some(WriteEnd {
                        len,
                        immediate,
                        solicited,
                    }),
                }
            }
            (
                Operation::WriteMiddle(_) | Operation::WriteLast(..),
                Some(Begun::Write { reth, offset }),
            ) => {
                let last = match packet.operation {
                    Operation::WriteLast(_, immediate) => Some(immediate),
                    _ => None,
                };
                check(is_whole(last.is_some()), Violation::PacketLength)?;
                let end = offset + len;
                let fits = match last {
                    Some(_) => end == reth.len && len > 0,
                    None => end < reth.len,
                };
                check(fits, Violation::MessageLength)?;
                pending.ends_message = last.is_some();
                pending.next = last.is_none().then_some(Begun::Write { reth, offset: end });
                RequestStep::Write {
                    rkey: reth.rkey,
                    va: To::new(reth.va.get().wrapping_add(u64::from(offset))),
                    message: None,
                    end: last.map(|immediate| WriteEnd {
                        len: end,
                        immediate,
                        solicited,
                    }),
                }
            }
            (Operation::ReadRequest(reth), None) => {
                check(len == 0, Violation::PacketLength)?;
                check(reth.len <= MAX_MESSAGE, Violation::MessageLength)?;
                check(self.may_answer(), Violation::TooManyReads)?;
                pending.psns = self.mtu.packets(reth.len);
                pending.ends_message = true;
                pending.read = Some(reth);
                RequestStep::Read(reth)
            }
            (Operation::CmpSwap(atomic) | Operation::FetchAdd(atomic), None) => {
                check(len == 0, Violation::PacketLength)?;
                check(atomic.va.get() % 8 == 0, Violation::Alignment)?;
                check(self.may_answer(), Violation::TooManyReads)?;
                pending.ends_message = true;
                RequestStep::Atomic(match packet.operation {
                    Operation::CmpSwap(_) => Atomic::CmpSwap(atomic),
                    _ => Atomic::FetchAdd(atomic),
                })
            }
            _ => return Err(Violation::OpcodeSequence),
        };
        Ok((step, pending))
    }
}

/// The packet is the first of its message.
pub(super) fn begins_message(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::SendFirst(_)
            | Operation::SendOnly(..)
            | Operation::WriteFirst(..)
            | Operation::WriteOnly(..)
    )
}

fn check(holds: bool, violation: Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation) }
}
