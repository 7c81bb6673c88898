//! The descriptors that a connection's bytes pass: one socket, or the two ends of a pair where a queue pair is its own peer.
//! It promises that nothing passes before the stream has begun or after it was given up: whoever comes late with a
//! connection of the past must not touch the stream of the next one. It refuses to know what passes.

use std::sync::atomic::{AtomicBool, Ordering};

use verbena_mem::{Sources, Targets};
use verbena_nic::{Carrier, Moved};

use crate::sys::{self, Socket};

/// A connection's descriptors.
#[derive(Debug)]
pub(crate) struct Line {
    /// Bytes leave here, and come here, too, unless there is another end for them.
    socket: Socket,
    other: Option<Socket>,
    /// A stream of the queue pair is on it.
    open: AtomicBool,
}

impl Line {
    pub(crate) fn new(socket: Socket, other: Option<Socket>) -> Line {
        Line {
            socket,
            other,
            open: AtomicBool::new(false),
        }
    }

    /// The same descriptors under other numbers. No stream is on them.
    pub(crate) fn duplicate(&self) -> sys::Result<Line> {
        let other = self.other.as_ref().map(Socket::duplicate).transpose()?;
        Ok(Line::new(self.socket.duplicate()?, other))
    }

    /// Where bytes leave.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Where bytes come, if not at the same socket.
    pub(crate) fn other(&self) -> Option<&Socket> {
        self.other.as_ref()
    }

    /// Where bytes come.
    pub(super) fn reads(&self) -> &Socket {
        self.other.as_ref().unwrap_or(&self.socket)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub(super) fn shut(&self) {
        self.open.store(false, Ordering::Release);
    }
}

impl Carrier for &Line {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        if self.is_open() {
            Carrier::read(&mut self.reads(), targets)
        } else {
            Moved::Nothing
        }
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        if self.is_open() {
            Carrier::write(&mut self.socket(), sources)
        } else {
            Moved::Nothing
        }
    }

    fn undelivered(&self) -> Option<u64> {
        // The two ends of a pair close together.
        let single = self.is_open() && self.other.is_none();
        single.then(|| self.socket.unacknowledged())
    }
}

/// A line for one turn of sending: it takes some bytes, and then none until the next turn.
///
/// While a peer reads as fast as we write, a socket is never full. Whoever went on until it is would be away for as long as
/// the peer keeps up, with others waiting for their turn and with a completion queue that nobody polls.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    line: &'a Line,
    left: usize,
}

impl Turn<'_> {
    pub(super) fn new(line: &Line, bytes: usize) -> Turn<'_> {
        Turn { line, left: bytes }
    }

    /// It took all it takes: there may be room.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }
}

impl Carrier for Turn<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        Carrier::read(&mut self.line, targets)
    }

    fn undelivered(&self) -> Option<u64> {
        self.line.undelivered()
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        if self.is_over() {
            return Moved::Nothing;
        }
        let moved = Carrier::write(&mut self.line, sources);
        if let Moved::Bytes(n) = moved {
            self.left = self.left.saturating_sub(n);
        }
        moved
    }
}

#[cfg(test)]
mod tests;
