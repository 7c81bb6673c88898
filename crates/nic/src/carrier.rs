//! The carrier moves bytes between a queue pair and a socket, a simulated link or a test.
//! A queue pair names where the next bytes go or come from, and a carrier moves them and returns only how many
//! (docs/ARCHITECTURE.md). A carrier does not block and does not interpret the bytes.

use verbena_mem::{Sources, Targets};

/// Result of one attempt to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// So many, at least one.
    Bytes(usize),
    /// None now: nothing has arrived, or there is no room.
    Nothing,
    /// None ever again: the peer has closed its direction. Only when reading.
    End,
    /// None ever again: the connection broke.
    Broken,
    /// A source or target is not mapped any more.
    Fault,
}

/// Moves bytes without blocking.
pub trait Carrier {
    /// Fills the targets, in order, with the bytes that arrived next.
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved;

    /// Sends the bytes of the sources, in order.
    fn write(&mut self, sources: &Sources<'_>) -> Moved;

    /// Bytes written that the peer's process cannot have read, known when the peer has closed its direction; `None` where
    /// the carrier cannot tell.
    fn undelivered(&self) -> Option<u64> {
        None
    }

    /// Nothing can be done before so many further bytes have arrived, so no wakeup is needed for fewer. A hint, valid until the next call.
    fn expect(&mut self, _bytes: usize) {}
}

/// A carrier in memory, for tests, simulations and fuzzers: bytes that arrived, and room for bytes to send.
#[derive(Debug, Default)]
pub struct Hand<'a> {
    /// Bytes that arrived and were not read.
    pub came: &'a [u8],
    /// Bytes sent.
    pub went: Vec<u8>,
    /// Bytes that still fit into `went`.
    pub room: usize,
}

impl<'a> Hand<'a> {
    /// With these bytes to read.
    pub fn with(came: &'a [u8]) -> Hand<'a> {
        Hand {
            came,
            ..Hand::default()
        }
    }

    /// With room for `room` bytes to send.
    pub fn open(room: usize) -> Hand<'a> {
        Hand {
            room,
            ..Hand::default()
        }
    }
}

impl Carrier for Hand<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        let Ok(n) = targets.fill(self.came) else {
            return Moved::Fault;
        };
        self.came = &self.came[n..];
        some(n)
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        let Ok(n) = sources.copy_to(&mut self.went, self.room) else {
            return Moved::Fault;
        };
        self.room -= n;
        some(n)
    }
}

fn some(n: usize) -> Moved {
    if n == 0 {
        Moved::Nothing
    } else {
        Moved::Bytes(n)
    }
}

#[cfg(test)]
mod tests;
