//! Coalescing of small sends: while messages are in flight, further small ones are collected in the send buffer as one tail. With few
//! messages in flight nothing is delayed. A tail is posted when completions arrive, when it is long enough or before anything else is
//! sent, whatever the program does meanwhile; there is no timer.

use std::sync::atomic::Ordering;

use verbena::low::{Data, Flags, SendOp, SendWr};

use super::{Flow, Link};
use crate::error::Error;

/// Length limit of a send that may be collected.
const MAX_COALESCED: usize = 2 << 10;
/// A tail of this length is posted.
const MAX_TAIL: usize = 16 << 10;
/// Messages in flight from which on small sends are collected; request and response never reach it.
const COALESCE_FROM: usize = 8;

/// Bytes in the send buffer that count as one message but were not posted.
pub(super) struct Tail {
    /// Their offset in the send buffer.
    at: usize,
    len: usize,
    /// Their offset in the peer's ring.
    to: u64,
}

impl Link {
    /// Adds a small send to the tail; false if it is to be posted by itself.
    pub(super) fn coalesce(&self, bytes: &[u8]) -> Result<bool, Error> {
        if bytes.is_empty() || bytes.len() > MAX_COALESCED {
            return Ok(false);
        }
        let mut flow = self.lock_flow();
        // The posting path reports the error, or finds that the condition has passed.
        if self.check_sending(&flow).is_err() {
            return Ok(false);
        }
        if flow.tail.is_some() {
            if self.append(&mut flow, bytes)? {
                return Ok(true);
            }
            self.flush_tail(&mut flow);
        }
        if flow.sends < self.coalesce_from() || !self.begin_tail(&mut flow, bytes)? {
            return Ok(false);
        }
        self.arm_for_tail(&mut flow);
        Ok(true)
    }

    /// Messages in flight below which nothing is collected.
    fn coalesce_from(&self) -> usize {
        COALESCE_FROM.min(self.options.sends / 2)
    }

    /// Starts a tail; false if there is no room.
    fn begin_tail(&self, flow: &mut Flow, bytes: &[u8]) -> Result<bool, Error> {
        let free = self.free_send_buffer(flow).min(self.send_buffer.len() - 1);
        let Some((outgoing, _)) = &mut flow.peer else {
            return Ok(false);
        };
        let len = bytes.len() as u64;
        let room = outgoing.room() >= len && free >= bytes.len();
        if !room || flow.sends >= self.options.sends {
            return Ok(false);
        }
        let at = (flow.buffered.0 % self.send_buffer.len() as u64) as usize;
        self.send_buffer.write_at(at, bytes)?;
        let to = outgoing.send(len);
        flow.buffered.0 += len;
        flow.sends += 1;
        let len = bytes.len();
        flow.tail = Some(Tail { at, len, to });
        self.has_tail.store(true, Ordering::SeqCst);
        Ok(true)
    }

    /// Appends to the tail; false if there is no room.
    fn append(&self, flow: &mut Flow, bytes: &[u8]) -> Result<bool, Error> {
        let free = self.free_send_buffer(flow);
        let (Some(tail), Some((outgoing, _))) = (&mut flow.tail, &mut flow.peer) else {
            return Ok(false);
        };
        let end = tail.at + tail.len;
        // At the end of the buffer, the next bytes would not be contiguous.
        let follows = end < self.send_buffer.len() && free >= bytes.len();
        if !follows || outgoing.growth() < bytes.len() as u64 {
            return Ok(false);
        }
        self.send_buffer.write_at(end, bytes)?;
        tail.len += bytes.len();
        let long = tail.len >= MAX_TAIL;
        outgoing.grow(bytes.len() as u64);
        flow.buffered.0 += bytes.len() as u64;
        if long {
            self.flush_tail(flow);
        }
        Ok(true)
    }

    /// Makes sure that the tail is posted when completions arrive, even if the program makes no further call.
    pub(super) fn arm_for_tail(&self, flow: &mut Flow) {
        if flow.tail.is_some() {
            self.arm();
            // Completions before arming raise no event.
            if !self.turn(flow) {
                self.tail_due.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Posts the tail if few messages are in flight.
    pub(super) fn flush_tail_if_few(&self, flow: &mut Flow) {
        if flow.tail.is_some() && flow.sends <= self.coalesce_from() {
            self.flush_tail(flow);
        }
    }

    /// Posts the tail.
    pub(super) fn flush_tail(&self, flow: &mut Flow) {
        let Some(tail) = flow.tail.take() else { return };
        self.has_tail.store(false, Ordering::SeqCst);
        if self.post_tail(flow, &tail).is_err() {
            flow.sends -= 1;
            flow.lost = true;
        }
    }

    fn post_tail(&self, flow: &Flow, tail: &Tail) -> Result<(), Error> {
        let (_, ring) = flow.peer.as_ref().ok_or(Error::NotConnected)?;
        let place = self.send_buffer.sge(tail.at, tail.len)?;
        let op = SendOp::Write {
            remote: ring.slice(tail.to, tail.len as u64)?.remote_addr(),
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
