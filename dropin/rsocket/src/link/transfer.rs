//! Bytes out and in: through the send buffer into the peer's ring, and out of the receive ring. Bytes arrive in the order of the calls,
//! and are copied without the lock of the state. Calls transfer as much as possible now, or return [`Error::WouldBlock`].

use std::time::Duration;

use verbena::low::{Data, Flags, RemoteAddr, SendOp, SendWr};

use super::{CONTROL_SENDS, Flow, Link, Phase};
use crate::control_message::ControlMessage;
use crate::error::Error;

/// Limit of one message: the peer reads the first while the next are in flight.
const MAX_MESSAGE: usize = 64 << 10;

/// How long an exiting process waits for a lock, which other threads hold for much less.
const EXIT_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// The destination of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteTarget {
    /// The peer's ring, as the next bytes of the stream.
    Ring,
    /// Memory that the peer has mapped at this offset.
    Mapped(u64),
}

/// Bytes that may be posted now.
struct Chunk {
    len: usize,
    /// Their offset in the send buffer; `None` if they are inline.
    buffer_offset: Option<usize>,
    to: RemoteAddr,
}

impl Link {
    /// Free contiguous bytes of the send buffer.
    pub(super) fn free_send_buffer(&self, flow: &Flow) -> usize {
        let all = self.send_buffer.len() as u64;
        let free = all - (flow.buffered.0 - flow.buffered.1);
        free.min(all - flow.buffered.0 % all) as usize
    }

    pub(super) fn has_send_buffer(&self, flow: &Flow) -> bool {
        self.free_send_buffer(flow) > 0
    }

    /// Sends as much as possible now.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.push(bytes, WriteTarget::Ring)
    }

    pub(super) fn push(&self, bytes: &[u8], aim: WriteTarget) -> Result<usize, Error> {
        let _one = self.writing.lock();
        if matches!(aim, WriteTarget::Ring) && self.coalesce(bytes)? {
            return Ok(bytes.len());
        }
        let mut done = 0;
        while done < bytes.len() {
            let aim = match aim {
                WriteTarget::Ring => WriteTarget::Ring,
                WriteTarget::Mapped(offset) => {
                    WriteTarget::Mapped(offset.saturating_add(done as u64))
                }
            };
            let rest = &bytes[done..];
            match self.reserve(rest.len(), aim) {
                Ok(piece) => {
                    self.post(&rest[..piece.len], &piece, aim)?;
                    done += piece.len;
                }
                // The bytes sent so far count; the next call returns the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reserves room for a piece; completions are polled only if there seems to be none.
    fn reserve(&self, len: usize, aim: WriteTarget) -> Result<Chunk, Error> {
        let mut flow = self.lock_flow();
        match self.try_reserve(&mut flow, len, aim) {
            Err(Error::WouldBlock | Error::Unmapped { .. }) => {
                self.turn(&mut flow);
                self.try_reserve(&mut flow, len, aim)
            }
            done => done,
        }
    }

    fn try_reserve(&self, flow: &mut Flow, len: usize, aim: WriteTarget) -> Result<Chunk, Error> {
        self.check_sending(flow)?;
        // Everything posted from now on follows the tail.
        self.flush_tail(flow);
        let free = self.free_send_buffer(flow);
        if flow.sends >= self.options.sends || free == 0 {
            return Err(Error::WouldBlock);
        }
        let inline = len <= self.options.inline;
        let most = if inline {
            len
        } else {
            len.min(free).min(MAX_MESSAGE)
        };
        let (len, to) = match aim {
            WriteTarget::Ring => {
                let (outgoing, ring) = flow.peer.as_mut().ok_or(Error::WouldBlock)?;
                let len = usize::try_from(outgoing.room()).unwrap_or(most).min(most);
                if len == 0 {
                    return Err(Error::WouldBlock);
                }
                let at = outgoing.send(len as u64);
                (len, ring.slice(at, len as u64)?)
            }
            WriteTarget::Mapped(offset) => flow.mapped(offset, most)?,
        };
        flow.sends += 1;
        let mut stock = None;
        if !inline {
            stock = Some((flow.buffered.0 % self.send_buffer.len() as u64) as usize);
            flow.buffered.0 += len as u64;
        }
        let to = to.remote_addr();
        Ok(Chunk {
            len,
            buffer_offset: stock,
            to,
        })
    }

    pub(super) fn check_sending(&self, flow: &Flow) -> Result<(), Error> {
        match &flow.phase {
            Phase::Connecting => Err(Error::WouldBlock),
            Phase::Failed(error) => Err(error.clone()),
            Phase::Connected if flow.ended => Err(Error::Pipe),
            Phase::Connected if flow.lost && flow.peer_ended => Err(Error::Pipe),
            Phase::Connected if flow.lost => Err(Error::Reset),
            Phase::Connected => Ok(()),
        }
    }

    fn post(&self, bytes: &[u8], piece: &Chunk, aim: WriteTarget) -> Result<(), Error> {
        let op = SendOp::Write {
            remote: piece.to,
            // A write into the ring is announced to the peer; one into mapped memory is not.
            immediate: matches!(aim, WriteTarget::Ring).then_some(bytes.len() as u32),
        };
        let posted = match piece.buffer_offset {
            None => self.qp.post_send(&[SendWr {
                id: 0,
                op,
                flags: Flags::SIGNALED,
                data: Data::Inline(bytes),
            }]),
            Some(at) => {
                self.send_buffer.write_at(at, bytes)?;
                let place = self.send_buffer.sge(at, bytes.len())?;
                self.qp.post_send(&[SendWr {
                    id: bytes.len() as u64,
                    op,
                    flags: Flags::SIGNALED,
                    data: Data::Gather(&[place]),
                }])
            }
        };
        if posted.is_err() {
            let mut flow = self.lock_flow();
            flow.sends -= 1;
            flow.lost = true;
            return Err(Error::Reset);
        }
        Ok(())
    }

    /// Reads available bytes, at most what `into` holds; zero bytes are the end.
    pub(crate) fn recv(&self, into: &mut [u8], peek: bool) -> Result<usize, Error> {
        let _one = self.reading.lock();
        let mut done = 0;
        while done < into.len() {
            let skip = if peek { done as u64 } else { 0 };
            let (at, len) = self.next_unread(skip, done == 0)?;
            let len = usize::try_from(len)
                .unwrap_or(usize::MAX)
                .min(into.len() - done);
            if len == 0 {
                break;
            }
            self.ring
                .read_at(at as usize, &mut into[done..done + len])?;
            done += len;
            if !peek {
                let mut flow = self.lock_flow();
                flow.incoming.consume(len as u64);
                self.send_due_credit(&mut flow);
            }
        }
        Ok(done)
    }

    /// The next unread bytes; if there are none and some are `needed`, the reason. No bytes are the end.
    fn next_unread(&self, skip: u64, needed: bool) -> Result<(u64, u64), Error> {
        let mut flow = self.lock_flow();
        let piece = flow.incoming.unread_chunk(skip);
        if piece.1 > 0 || !needed {
            return Ok(piece);
        }
        self.turn(&mut flow);
        let piece = flow.incoming.unread_chunk(skip);
        match &flow.phase {
            _ if piece.1 > 0 => Ok(piece),
            Phase::Failed(error) => Err(error.clone()),
            Phase::Connecting => Err(Error::WouldBlock),
            Phase::Connected if flow.peer_ended || flow.read_shut => Ok(piece),
            Phase::Connected if flow.lost => Err(Error::Reset),
            Phase::Connected => Err(Error::WouldBlock),
        }
    }

    /// The number of unread bytes.
    pub(crate) fn unread(&self) -> u64 {
        let mut flow = self.lock_flow();
        self.turn(&mut flow);
        flow.incoming.unread()
    }

    /// Ends the sending direction.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let _one = self.writing.lock();
        let mut flow = self.lock_flow();
        self.turn(&mut flow);
        match self.check_sending(&flow) {
            Ok(()) if flow.sends >= self.options.sends + CONTROL_SENDS => Err(Error::WouldBlock),
            Ok(()) => {
                self.send_end(&mut flow);
                self.events.waiters.notify();
                Ok(())
            }
            Err(Error::Pipe) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn send_end(&self, flow: &mut Flow) {
        self.flush_tail(flow);
        flow.ended = true;
        self.send_control(flow, ControlMessage::End);
    }

    /// The same for an exiting process, perhaps within a call of this very thread: it waits for locks only briefly.
    pub(crate) fn end_at_exit(&self) {
        let Some(_one) = self.writing.try_lock_for(EXIT_LOCK_TIMEOUT) else {
            return;
        };
        let Some(mut flow) = self.flow.try_lock_for(EXIT_LOCK_TIMEOUT) else {
            return;
        };
        let room = flow.sends < self.options.sends + CONTROL_SENDS;
        if room && self.check_sending(&flow).is_ok() {
            self.send_end(&mut flow);
        }
    }

    /// Nothing is in flight any more; false while another thread holds the lock.
    pub(crate) fn is_exit_drained(&self) -> bool {
        let Some(mut flow) = self.flow.try_lock() else {
            return false;
        };
        self.turn(&mut flow);
        self.is_done(&flow)
    }
}
