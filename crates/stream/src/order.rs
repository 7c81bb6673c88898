//! DDP order on one receive direction: whether a segment is the next, and its offset in its message (RFC 5041 §5).
//! Tagged and untagged messages have separate contexts, because a standard peer may interleave a Send with a Write; with the
//! extensions (`strict`) that is a violation.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Mo, Msn, Qn, Stag, To};

use crate::violation::Violation;

/// Number of queues: 0 to 3 by RFC 5040 and 7306, 4 and 5 by docs/extensions.md.
const QUEUES: usize = 6;

/// The position of a segment in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// It is the first of its message.
    pub first: bool,
    /// Message bytes before it.
    pub offset: u32,
}

/// The order of one receive direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    expected: [Msn; QUEUES],
    /// Unfinished multi-segment messages: at most one per class.
    send: Option<OpenUntagged>,
    response_v2: Option<OpenUntagged>,
    write: Option<OpenTagged>,
    response: Option<OpenTagged>,
    /// No message may begin while another is unfinished (docs/extensions.md).
    strict: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct OpenUntagged {
    opcode: Opcode,
    ulp: u32,
    msn: Msn,
    next: Mo,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct OpenTagged {
    header: Tagged,
    len: u32,
}

impl Order {
    /// The order of a new stream.
    pub fn new(strict: bool) -> Order {
        Order {
            expected: [Msn::FIRST; QUEUES],
            send: None,
            response_v2: None,
            write: None,
            response: None,
            strict,
        }
    }

    /// The message number that must come next on a queue.
    pub fn expected(&self, qn: Qn) -> Msn {
        self.expected[index(qn)]
    }

    /// The next message on a queue has arrived, whole.
    pub(crate) fn advance(&mut self, qn: Qn) {
        let expected = &mut self.expected[index(qn)];
        *expected = expected.next();
    }

    /// Bytes of the Write before a segment at this address, if such a segment may come now.
    pub(crate) fn next_write_offset(&self, stag: Stag, to: To) -> Option<u32> {
        match self.write {
            None => (!self.is_mid_message()).then_some(0),
            // Only a standard peer may have more than one unfinished message; `tagged` handles that.
            Some(_) if self.send.is_some() || self.response_v2.is_some() => None,
            Some(open) => (open.header.stag == stag && open.header.to == to).then_some(open.len),
        }
    }

    /// Such a segment has arrived: `len` bytes, `so_far` of the message.
    pub(crate) fn advance_write(
        &mut self,
        stag: Stag,
        to: To,
        (len, so_far): (u32, u32),
        last: bool,
    ) {
        let next = to.checked_add(u64::from(len)).unwrap_or(to);
        self.write = (!last).then_some(OpenTagged {
            header: Tagged {
                last: false,
                opcode: Opcode::Write,
                stag,
                to: next,
            },
            len: so_far,
        });
    }

    /// The unfinished Send: its number, and bytes of the segments that have begun.
    pub(crate) fn open_send(&self) -> Option<(Msn, u32)> {
        self.send.map(|open| (open.msn, open.next.get()))
    }

    /// The unfinished Read V2 Response: its number.
    pub(crate) fn open_response_v2(&self) -> Option<Msn> {
        self.response_v2.map(|open| open.msn)
    }

    /// A message is unfinished.
    pub fn is_mid_message(&self) -> bool {
        self.open().is_some()
    }

    /// Drops unfinished requests, at RESUME; responses go on. Message numbers keep counting.
    pub fn drop_requests(&mut self) {
        self.send = None;
        self.write = None;
    }

    fn open(&self) -> Option<Opcode> {
        let untagged = self.send.or(self.response_v2).map(|o| o.opcode);
        let tagged = self.write.or(self.response).map(|o| o.header.opcode);
        untagged.or(tagged)
    }

    /// `discarding`: requests are being discarded, and the peer may leave one unfinished.
    fn may_begin(&mut self, got: Opcode, discarding: bool) -> Result<(), Violation> {
        if !self.strict {
            return Ok(());
        }
        if discarding {
            self.drop_requests();
        }
        match self.open() {
            None => Ok(()),
            Some(open) => Err(Violation::Interleaved { open, got }),
        }
    }

    /// A message that is always one segment: read and atomic requests, atomic responses, immediates.
    pub fn accept_single(&mut self, h: &Untagged, discarding: bool) -> Result<(), Violation> {
        self.accept_control(h)?;
        self.may_begin(h.opcode, discarding)?;
        // Queue 0 delivers in order: an immediate cannot come inside a Send.
        match self.send.filter(|_| h.qn == Qn::SEND) {
            None => Ok(()),
            Some(open) => Err(Violation::Interleaved {
                open: open.opcode,
                got: h.opcode,
            }),
        }
    }

    /// A single segment that may come inside any message: control and Terminate.
    pub fn accept_control(&mut self, h: &Untagged) -> Result<(), Violation> {
        if !h.last {
            return Err(Violation::NotSingle(h.opcode));
        }
        if h.mo != Mo::ZERO {
            return Err(Violation::Offset {
                expected: Mo::ZERO,
                got: h.mo,
            });
        }
        self.take_msn(h)
    }

    /// A segment of a Send or of a Read V2 Response.
    pub fn accept_untagged(
        &mut self,
        h: &Untagged,
        len: u32,
        discarding: bool,
    ) -> Result<Position, Violation> {
        let slot = if h.qn == Qn::READ_V2_RESPONSE {
            self.response_v2
        } else {
            self.send
        };
        let position = match slot {
            Some(open) => continue_untagged(&open, h)?,
            None => {
                if h.mo != Mo::ZERO {
                    return Err(Violation::Offset {
                        expected: Mo::ZERO,
                        got: h.mo,
                    });
                }
                self.take_msn(h)?;
                self.may_begin(h.opcode, discarding)?;
                Position {
                    first: true,
                    offset: 0,
                }
            }
        };
        // RFC 5041 §5.1: a message stays below 2^32 bytes.
        let next =
            h.mo.checked_add(len)
                .ok_or(Violation::OffsetWrap { mo: h.mo, len })?;
        let open = (!h.last).then_some(OpenUntagged {
            opcode: h.opcode,
            ulp: h.ulp,
            msn: h.msn,
            next,
        });
        if h.qn == Qn::READ_V2_RESPONSE {
            self.response_v2 = open;
        } else {
            self.send = open;
        }
        Ok(position)
    }

    /// A segment of an RDMA Write or of a Read Response.
    pub fn accept_tagged(
        &mut self,
        h: &Tagged,
        len: u32,
        discarding: bool,
    ) -> Result<Position, Violation> {
        let is_write = h.opcode == Opcode::Write;
        let slot = if is_write { self.write } else { self.response };
        let (position, before) = match slot {
            Some(open) => {
                continue_tagged(&open, h)?;
                let offset = open.len;
                (
                    Position {
                        first: false,
                        offset,
                    },
                    open.len,
                )
            }
            None => {
                self.tagged_may_begin(h, discarding)?;
                (
                    Position {
                        first: true,
                        offset: 0,
                    },
                    0,
                )
            }
        };
        // RFC 5041 §7.2: a zero-length segment accesses no byte, so its address is not checked.
        let next = if len == 0 {
            h.to
        } else {
            h.to.checked_add(u64::from(len))
                .ok_or(Violation::Wrap { to: h.to, len })?
        };
        let total = before.checked_add(len).ok_or(Violation::TaggedTooLong)?;
        let open = (!h.last).then_some(OpenTagged {
            header: Tagged { to: next, ..*h },
            len: total,
        });
        if is_write {
            self.write = open;
        } else {
            self.response = open;
        }
        Ok(position)
    }

    /// One tagged message at a time: a Write inside a Read Response, or the reverse, is a violation.
    fn tagged_may_begin(&mut self, h: &Tagged, discarding: bool) -> Result<(), Violation> {
        self.may_begin(h.opcode, discarding)?;
        match self.write.or(self.response) {
            None => Ok(()),
            Some(open) => Err(Violation::Interleaved {
                open: open.header.opcode,
                got: h.opcode,
            }),
        }
    }

    fn take_msn(&mut self, h: &Untagged) -> Result<(), Violation> {
        let expected = self.expected[index(h.qn)];
        if h.msn != expected {
            return Err(Violation::MsnRange {
                qn: h.qn,
                expected,
                got: h.msn,
            });
        }
        self.expected[index(h.qn)] = expected.next();
        Ok(())
    }
}

fn continue_untagged(open: &OpenUntagged, h: &Untagged) -> Result<Position, Violation> {
    if h.msn != open.msn {
        return Err(Violation::MsnRange {
            qn: h.qn,
            expected: open.msn,
            got: h.msn,
        });
    }
    // RFC 5041 §5.2: every segment of a message carries the same RsvdULP bits.
    if h.opcode != open.opcode || h.ulp != open.ulp {
        return Err(Violation::Changed {
            began: open.opcode,
            got: h.opcode,
        });
    }
    if h.mo != open.next {
        return Err(Violation::Offset {
            expected: open.next,
            got: h.mo,
        });
    }
    Ok(Position {
        first: false,
        offset: h.mo.get(),
    })
}

fn continue_tagged(open: &OpenTagged, h: &Tagged) -> Result<(), Violation> {
    if h.stag != open.header.stag {
        return Err(Violation::TaggedStag {
            expected: open.header.stag,
            got: h.stag,
        });
    }
    let expected: To = open.header.to;
    if h.to != expected {
        return Err(Violation::TaggedGap {
            expected,
            got: h.to,
        });
    }
    Ok(())
}

/// The caller has checked that the queue is the opcode's, so it is below `QUEUES`.
fn index(qn: Qn) -> usize {
    (qn.get() as usize).min(QUEUES - 1)
}

#[cfg(test)]
mod tests;
