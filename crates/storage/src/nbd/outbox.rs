//! What is on its way to a client: words of the handshake, then heads of replies and payload straight from registered memory.
//! It promises that heads without payload travel together, and that payload keeps its memory until the last byte has left.
//! It refuses to grow by itself: whoever adds looks at how full it is first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use verbena::Memory;

use super::codec::ReplyHead;
use super::slots::{Run, Slots};
use crate::error::Error;

/// Heads that travel together.
const BURST: usize = 64;

/// One reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) head: ReplyHead,
    /// What follows the head.
    pub(super) payload: Option<(Run, u32)>,
}

/// What is on its way out.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Reply>,
    /// What goes now: heads, and then the payload of the last one.
    now: Vec<u8>,
    payload: Option<(Run, u32)>,
    sent: usize,
}

/// What a call of the system came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There was nothing to send.
    Nothing,
    /// Something left.
    Some,
    /// The socket takes no more now.
    Blocked,
}

impl Outbox {
    /// Replies that have not left altogether.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(!self.now.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where words of the handshake are put; they may wait for nothing else.
    pub(super) fn words(&mut self) -> &mut Vec<u8> {
        &mut self.now
    }

    pub(super) fn push(&mut self, reply: Reply) {
        self.waiting.push_back(reply);
    }

    /// Forgets everything: nobody is there to read it.
    pub(super) fn clear(&mut self, slots: &mut Slots) {
        let waiting = self.waiting.drain(..).filter_map(|reply| reply.payload);
        for (run, _) in waiting.chain(self.payload.take()) {
            slots.give_back(run);
        }
        self.now.clear();
        self.sent = 0;
    }

    /// Sends what one call of the system takes.
    pub(super) fn transmit(
        &mut self,
        socket: BorrowedFd<'_>,
        memory: &Memory,
        slots: &mut Slots,
    ) -> Result<io::Result<Sent>, Error> {
        if self.now.is_empty() {
            self.gather();
        }
        if self.now.is_empty() {
            return Ok(Ok(Sent::Nothing));
        }
        let heads = self.now.get(self.sent..).unwrap_or_default();
        let beyond = self.sent.saturating_sub(self.now.len());
        let (offset, len) = match &self.payload {
            Some((run, len)) => (run.offset() + beyond, *len as usize - beyond),
            None => (0, 0),
        };
        match memory.write_to(socket, heads, offset, len)? {
            Ok(count) => self.sent += count,
            Err(error) => {
                return Ok(match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Sent::Blocked),
                    io::ErrorKind::Interrupted => Ok(Sent::Some),
                    _ => Err(error),
                });
            }
        }
        let all = self.now.len() + self.payload.as_ref().map_or(0, |(_, len)| *len as usize);
        if self.sent >= all {
            if let Some((run, _)) = self.payload.take() {
                slots.give_back(run);
            }
            self.now.clear();
            self.sent = 0;
        }
        Ok(Ok(Sent::Some))
    }

    /// Heads up to the first payload.
    fn gather(&mut self) {
        for _ in 0..BURST {
            let Some(reply) = self.waiting.pop_front() else {
                return;
            };
            self.now.extend_from_slice(reply.head.as_slice());
            if reply.payload.is_some() {
                self.payload = reply.payload;
                return;
            }
        }
    }
}
