//! Outstanding reads and atomics in both directions: this side's ([`ReadsOut`]) and the peer's ([`ReadsIn`]) (M10, M18).
//! Depth limits are checked, and responses are matched to requests in order and byte for byte. The address of a sink is known to
//! the caller only: here it is an offset in the request.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use verbena_wire::ddp::Tagged;
use verbena_wire::rdmap::{AtomicResponse, Opcode};
use verbena_wire::{Mo, Msn, Qn, Rsn, Stag, To};

use crate::violation::Violation;

/// A request of this side that waits for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOut {
    /// The request's number.
    pub rsn: Rsn,
    /// What was asked for.
    pub requested: Requested,
    /// Response bytes that have arrived.
    pub placed: u32,
}

/// What a waiting request asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requested {
    /// A Read with its sink on the wire (RFC 5040 §4.4).
    Read {
        /// Sink STag.
        stag: Stag,
        /// Sink offset.
        to: To,
        /// Bytes.
        size: u32,
    },
    /// A Read V2: the sink is not on the wire (V3).
    ReadV2 {
        /// Bytes.
        size: u32,
    },
    /// An atomic operation.
    Atomic {
        /// The identifier the response must echo.
        id: u32,
    },
    /// The zero-length Read that opened the stream; its response completes nothing (RFC 6581 §9.2).
    Rtr,
}

/// This side's requests that wait for responses, oldest first; at most ORD of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadsOut {
    limit: u16,
    queue: VecDeque<ReadOut>,
}

impl ReadsOut {
    /// None outstanding; at most `limit` at once.
    pub fn new(limit: u16) -> ReadsOut {
        ReadsOut {
            limit,
            queue: VecDeque::new(),
        }
    }

    /// One more request may be sent.
    pub fn has_room(&self) -> bool {
        self.queue.len() < usize::from(self.limit)
    }

    /// Lowers the limit to what the peer serves.
    pub fn limit_to(&mut self, peer_ird: u16) {
        self.limit = self.limit.min(peer_ird);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The oldest waiting request, to which the next response byte belongs.
    pub fn head(&self) -> Option<&ReadOut> {
        self.queue.front()
    }

    /// All that wait, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &ReadOut> {
        self.queue.iter()
    }

    /// A request was sent.
    pub fn push(&mut self, rsn: Rsn, requested: Requested) {
        self.queue.push_back(ReadOut {
            rsn,
            requested,
            placed: 0,
        });
    }

    /// Removes requests from `rsn` on, which the peer discarded and which will be sent again.
    ///
    /// A request that is being answered was executed: that the peer discarded it is a violation.
    pub fn rewind(&mut self, rsn: Rsn) -> Result<(), Violation> {
        while let Some(read) = self.queue.back().filter(|r| !r.rsn.is_before(rsn)) {
            if read.placed > 0 {
                return Err(Violation::OutOfPlace("RNR"));
            }
            self.queue.pop_back();
        }
        Ok(())
    }

    /// A Read Response segment arrived: returns the offset of its first byte in the request.
    pub(crate) fn match_response(&mut self, h: &Tagged, len: u32) -> Result<u32, Violation> {
        let head = self.queue.front_mut();
        let Some(head) = head else {
            return Err(Violation::Unsolicited(h.opcode));
        };
        let (size, sink) = match head.requested {
            Requested::Read { stag, to, size } => (size, Some((stag, to))),
            Requested::Rtr => (0, None),
            _ => return Err(Violation::Unsolicited(h.opcode)),
        };
        let offset = head.placed;
        if let Some((stag, to)) = sink.filter(|_| len > 0) {
            if h.stag != stag {
                return Err(Violation::ResponseStag {
                    expected: stag,
                    got: h.stag,
                });
            }
            let expected = to.checked_add(u64::from(offset)).unwrap_or(to);
            if h.to != expected {
                return Err(Violation::ResponseOffset {
                    expected,
                    got: h.to,
                });
            }
        }
        head.grow(h.opcode, size, len, h.last)?;
        Ok(offset)
    }

    /// A Read V2 Response segment arrived: returns the offset of its first byte in the request.
    pub(crate) fn match_response_v2(
        &mut self,
        offset: u32,
        len: u32,
        last: bool,
    ) -> Result<u32, Violation> {
        match self.queue.front_mut() {
            Some(head) => match head.requested {
                Requested::ReadV2 { size } => {
                    // A response whose request was removed by `rewind` cannot continue in the next one.
                    if offset != head.placed {
                        return Err(Violation::Offset {
                            expected: Mo::new(head.placed),
                            got: Mo::new(offset),
                        });
                    }
                    head.grow(Opcode::ReadV2Response, size, len, last)?;
                    Ok(offset)
                }
                _ => Err(Violation::Unsolicited(Opcode::ReadV2Response)),
            },
            None => Err(Violation::Unsolicited(Opcode::ReadV2Response)),
        }
    }

    /// An Atomic Response arrived.
    pub(crate) fn match_atomic_response(
        &mut self,
        response: &AtomicResponse,
    ) -> Result<(), Violation> {
        match self.queue.front() {
            Some(ReadOut {
                requested: Requested::Atomic { id },
                ..
            }) => {
                if *id == response.id {
                    Ok(())
                } else {
                    Err(Violation::AtomicId {
                        expected: *id,
                        got: response.id,
                    })
                }
            }
            _ => Err(Violation::Unsolicited(Opcode::AtomicResponse)),
        }
    }

    /// Removes the oldest request, whose response is complete.
    pub(crate) fn pop(&mut self) -> Option<ReadOut> {
        self.queue.pop_front()
    }
}

impl ReadOut {
    fn grow(&mut self, opcode: Opcode, size: u32, len: u32, last: bool) -> Result<(), Violation> {
        let end = u64::from(self.placed) + u64::from(len);
        if end > u64::from(size) {
            return Err(Violation::ResponseTooLong { opcode, size, end });
        }
        self.placed += len;
        if last && self.placed != size {
            return Err(Violation::ResponseShort {
                opcode,
                size,
                got: self.placed,
            });
        }
        Ok(())
    }
}

/// The peer's requests that are not answered, oldest first; at most IRD of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadsIn {
    limit: u16,
    queue: VecDeque<Rsn>,
}

impl ReadsIn {
    /// None outstanding; at most `limit` at once.
    pub fn new(limit: u16) -> ReadsIn {
        ReadsIn {
            limit,
            queue: VecDeque::new(),
        }
    }

    /// The agreed depth.
    pub fn limit(&self) -> u16 {
        self.limit
    }

    /// How many are not answered.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// All are answered.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The oldest request not yet answered.
    pub fn oldest(&self) -> Option<Rsn> {
        self.queue.front().copied()
    }

    /// A request arrived. RFC 5040 §3.3.1: the peer must keep to the agreed depth.
    pub(crate) fn push(&mut self, rsn: Rsn) -> Result<(), Violation> {
        if self.queue.len() >= usize::from(self.limit) {
            return Err(Violation::TooManyReads { limit: self.limit });
        }
        self.queue.push_back(rsn);
        Ok(())
    }

    /// Removes requests from `rsn` on, which will not be answered: discarded (an observer learns of it late), or the stream ended at `rsn`.
    pub fn rewind(&mut self, rsn: Rsn) {
        while self.queue.back().is_some_and(|r| !r.is_before(rsn)) {
            self.queue.pop_back();
        }
    }

    /// Removes the oldest request, whose last response frame was made.
    pub fn pop(&mut self) -> Option<Rsn> {
        self.queue.pop_front()
    }
}

/// Entries of the peer's read queue that are taken by requests ahead of a gap (M10): they are executed in order of their numbers.
#[derive(Debug, Default)]
pub struct ReadsAhead {
    /// At most as many as the agreed depth.
    taken: Vec<Msn>,
}

impl ReadsAhead {
    /// A request arrived whose number is not, or not yet, the `expected` one, while `free` entries are free. A repetition and a number
    /// beyond the free entries are violations.
    pub(crate) fn take(&mut self, msn: Msn, expected: Msn, free: usize) -> Result<(), Violation> {
        let distance = |msn: Msn| msn.get().wrapping_sub(expected.get()) as usize;
        // What has been executed meanwhile has left its entry.
        self.taken.retain(|taken| distance(*taken) < free);
        if distance(msn) >= free || self.taken.contains(&msn) {
            return Err(Violation::MsnRange {
                qn: Qn::READ_REQUEST,
                expected,
                got: msn,
            });
        }
        self.taken.push(msn);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
