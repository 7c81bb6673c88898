//! Small sends that leave together: while messages are under way, further small ones wait in the send buffer as one tail.
//! It promises that nothing waits while little is under way, that a tail leaves when completions come back, when it is long
//! enough or when anything else is to leave, whatever the program does meanwhile. It refuses timers.

use std::sync::atomic::Ordering;

use verbena::low::{Data, Flags, SendOp, SendWr};

use super::{Flow, Link};
use crate::error::Error;

/// Bytes of a send at most that may wait.
const SMALL: usize = 2 << 10;
/// A tail this long waits no more.
const LONG: usize = 16 << 10;
/// Messages under way before small sends wait for each other: a question and its answer never are so many.
const AHEAD: usize = 8;

/// Bytes in the send buffer that are counted as one message but have not left.
pub(super) struct Tail {
    /// Where they begin in the send buffer.
    at: usize,
    len: usize,
    /// Where they go in the peer's ring.
    to: u64,
}

impl Link {
    /// Takes a small send into the tail; false if it is to leave by itself.
    pub(super) fn collect(&self, bytes: &[u8]) -> Result<bool, Error> {
        if bytes.is_empty() || bytes.len() > SMALL {
            return Ok(false);
        }
        let mut flow = self.hold();
        // Why not, and whether that has changed meanwhile, is found out where sends leave.
        if self.check_sending(&flow).is_err() {
            return Ok(false);
        }
        if flow.tail.is_some() {
            if self.append(&mut flow, bytes)? {
                return Ok(true);
            }
            self.release(&mut flow);
        }
        if flow.sends < self.ahead() || !self.begin(&mut flow, bytes)? {
            return Ok(false);
        }
        self.expect(&mut flow);
        Ok(true)
    }

    /// Messages under way without which nothing waits.
    fn ahead(&self) -> usize {
        AHEAD.min(self.options.sends / 2)
    }

    /// A new tail; false without room for it.
    fn begin(&self, flow: &mut Flow, bytes: &[u8]) -> Result<bool, Error> {
        let free = self.free_stock(flow).min(self.stock.len() - 1);
        let Some((outgoing, _)) = &mut flow.peer else {
            return Ok(false);
        };
        let len = bytes.len() as u64;
        let room = outgoing.room() >= len && free >= bytes.len();
        if !room || flow.sends >= self.options.sends {
            return Ok(false);
        }
        let at = (flow.stock.0 % self.stock.len() as u64) as usize;
        self.stock.write_at(at, bytes)?;
        let to = outgoing.send(len);
        flow.stock.0 += len;
        flow.sends += 1;
        let len = bytes.len();
        flow.tail = Some(Tail { at, len, to });
        self.has_tail.store(true, Ordering::SeqCst);
        Ok(true)
    }

    /// Adds to the tail; false if that has no room for it.
    fn append(&self, flow: &mut Flow, bytes: &[u8]) -> Result<bool, Error> {
        let free = self.free_stock(flow);
        let (Some(tail), Some((outgoing, _))) = (&mut flow.tail, &mut flow.peer) else {
            return Ok(false);
        };
        let end = tail.at + tail.len;
        // What begins anew at the front of the buffer does not follow its end.
        let follows = end < self.stock.len() && free >= bytes.len();
        if !follows || outgoing.growth() < bytes.len() as u64 {
            return Ok(false);
        }
        self.stock.write_at(end, bytes)?;
        tail.len += bytes.len();
        let long = tail.len >= LONG;
        outgoing.grow(bytes.len() as u64);
        flow.stock.0 += bytes.len() as u64;
        if long {
            self.release(flow);
        }
        Ok(true)
    }

    /// The tail leaves when completions come, also if the program never calls again.
    pub(super) fn expect(&self, flow: &mut Flow) {
        if flow.tail.is_some() {
            self.arm();
            // What came before that is not told of.
            if !self.turn(flow) {
                self.due.store(true, Ordering::SeqCst);
            }
        }
    }

    /// The tail leaves if little else is under way.
    pub(super) fn release_if_few(&self, flow: &mut Flow) {
        if flow.tail.is_some() && flow.sends <= self.ahead() {
            self.release(flow);
        }
    }

    /// The tail leaves.
    pub(super) fn release(&self, flow: &mut Flow) {
        let Some(tail) = flow.tail.take() else { return };
        self.has_tail.store(false, Ordering::SeqCst);
        if self.post_tail(flow, &tail).is_err() {
            flow.sends -= 1;
            flow.lost = true;
        }
    }

    fn post_tail(&self, flow: &Flow, tail: &Tail) -> Result<(), Error> {
        let (_, ring) = flow.peer.as_ref().ok_or(Error::NotConnected)?;
        let place = self.stock.sge(tail.at, tail.len)?;
        let op = SendOp::Write {
            remote: ring.slice(tail.to, tail.len as u64)?.place(),
            immediate: Some(tail.len as u32),
        };
        let posted = self.qp.post_send(&[SendWr {
            id: tail.len as u64,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[place]),
        }]);
        posted.map_err(|_| Error::Reset)
    }
}

#[cfg(test)]
mod tests;
