//! Bytes received from a client and not processed yet, in a buffer of fixed size. A read asks for no more than is expected, so that payload
//! is mostly read directly into registered memory.

use std::io;
use std::os::fd::BorrowedFd;

use super::handshake::LONGEST;

/// Bytes received, in order.
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

    /// Removes the first `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads until it holds `want` bytes at most. Returns the bytes read; 0 at the end of the stream.
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
