//! Output to a client: handshake replies, then reply headers and payload from registered memory. Headers without payload are combined into
//! one write, and payload keeps its memory until its last byte was sent. The length is limited by the caller.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use verbena::Memory;

use super::codec::ReplyHead;
use super::slots::{Run, Slots};
use crate::error::Error;

/// Most headers in one write.
const BURST: usize = 64;

/// One reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) head: ReplyHead,
    /// The payload after the header.
    pub(super) payload: Option<(Run, u32)>,
}

/// Replies to send.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Reply>,
    /// Being sent: headers, and then the payload of the last one.
    sending: Vec<u8>,
    payload: Option<(Run, u32)>,
    sent: usize,
}

/// Result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// There was nothing to send.
    Empty,
    /// Something left.
    Progress,
    /// The socket buffer is full.
    WouldBlock,
}

impl Outbox {
    /// Replies not completely sent.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(!self.sending.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer for handshake replies, which are sent at once.
    pub(super) fn handshake_buffer(&mut self) -> &mut Vec<u8> {
        &mut self.sending
    }

    pub(super) fn push(&mut self, reply: Reply) {
        self.waiting.push_back(reply);
    }

    /// Discards everything: the client is disconnected.
    pub(super) fn clear(&mut self, slots: &mut Slots) {
        let waiting = self.waiting.drain(..).filter_map(|reply| reply.payload);
        for (run, _) in waiting.chain(self.payload.take()) {
            slots.release(run);
        }
        self.sending.clear();
        self.sent = 0;
    }

    /// Sends as much as one system call takes.
    pub(super) fn transmit(
        &mut self,
        socket: BorrowedFd<'_>,
        memory: &Memory,
        slots: &mut Slots,
    ) -> Result<io::Result<SendOutcome>, Error> {
        if self.sending.is_empty() {
            self.gather();
        }
        if self.sending.is_empty() {
            return Ok(Ok(SendOutcome::Empty));
        }
        let heads = self.sending.get(self.sent..).unwrap_or_default();
        let beyond = self.sent.saturating_sub(self.sending.len());
        let (offset, len) = match &self.payload {
            Some((run, len)) => (run.offset() + beyond, *len as usize - beyond),
            None => (0, 0),
        };
        match memory.write_to(socket, heads, offset, len)? {
            Ok(count) => self.sent += count,
            Err(error) => {
                return Ok(match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(SendOutcome::WouldBlock),
                    io::ErrorKind::Interrupted => Ok(SendOutcome::Progress),
                    _ => Err(error),
                });
            }
        }
        let all = self.sending.len() + self.payload.as_ref().map_or(0, |(_, len)| *len as usize);
        if self.sent >= all {
            if let Some((run, _)) = self.payload.take() {
                slots.release(run);
            }
            self.sending.clear();
            self.sent = 0;
        }
        Ok(Ok(SendOutcome::Progress))
    }

    /// Moves headers up to the first payload into `sending`.
    fn gather(&mut self) {
        for _ in 0..BURST {
            let Some(reply) = self.waiting.pop_front() else {
                return;
            };
            self.sending.extend_from_slice(reply.head.as_slice());
            if reply.payload.is_some() {
                self.payload = reply.payload;
                return;
            }
        }
    }
}
