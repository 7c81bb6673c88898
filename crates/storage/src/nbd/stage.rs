//! What has come from a client and is not understood yet: a few bytes in front of everything else.
//! It promises a fixed size, and that reading asks for no more than was wanted.
//! It refuses payload where it can: that goes straight to memory.

use std::io;
use std::os::fd::BorrowedFd;

use super::handshake::LONGEST;

/// Bytes that have come, in order.
#[derive(Debug)]
pub(super) struct Stage {
    bytes: Box<[u8; LONGEST]>,
    start: usize,
    end: usize,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage {
            bytes: Box::new([0; LONGEST]),
            start: 0,
            end: 0,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first so many bytes have been understood.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads until it holds `want` bytes, or what there is. Bytes read; 0 means that no more will come.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>, want: usize) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let limit = want.clamp(self.end, LONGEST);
        let count = rustix::io::read(socket, &mut self.bytes[self.end..limit])?;
        self.end += count;
        Ok(count)
    }
}
