//! The carrier moves bytes between a queue pair and a socket, a simulated link or a test.
//! A queue pair names where the next bytes go or come from, and a carrier moves them and returns only how many
//! (docs/ARCHITECTURE.md). A carrier does not block and does not interpret the bytes.

use verbena_mem::{Sources, Targets};

/// Result of one attempt to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoOutcome {
    /// So many, at least one.
    Bytes(usize),
    /// None now: nothing has arrived, or there is no room.
    WouldBlock,
    /// None ever again: the peer has closed its direction. Only when reading.
    Eof,
    /// None ever again: the connection broke.
    Broken,
    /// A source or target is not mapped any more.
    Fault,
}

/// Moves bytes without blocking.
pub trait Carrier {
    /// Fills the targets, in order, with the bytes that arrived next.
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome;

    /// Sends the bytes of the sources, in order.
    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome;

    /// Bytes written that the peer's process cannot have read, known when the peer has closed its direction; `None` where
    /// the carrier cannot tell.
    fn undelivered(&self) -> Option<u64> {
        None
    }

    /// Bytes written that the peer's transport has not acknowledged; `None` where the carrier cannot tell. Once the peer has closed its
    /// direction in good order, its process has read all others.
    fn unacknowledged(&self) -> Option<u64> {
        None
    }

    /// No byte will be written any more: the peer reads the end of the stream behind the last one. Its bytes still arrive.
    fn finish(&mut self) {}

    /// Nothing can be done before so many further bytes have arrived, so no wakeup is needed for fewer. A hint, valid until the next call.
    fn expect_at_least(&mut self, _bytes: usize) {}
}

/// A carrier in memory, for tests, simulations and fuzzers: bytes that arrived, and room for bytes to send.
#[derive(Debug, Default)]
pub struct MemoryCarrier<'a> {
    /// Bytes that arrived and were not read.
    pub input: &'a [u8],
    /// Bytes sent.
    pub output: Vec<u8>,
    /// Bytes that still fit into `output`.
    pub room: usize,
}

impl<'a> MemoryCarrier<'a> {
    /// With these bytes to read.
    pub fn with_input(came: &'a [u8]) -> MemoryCarrier<'a> {
        MemoryCarrier {
            input: came,
            ..MemoryCarrier::default()
        }
    }

    /// With room for `room` bytes to send.
    pub fn with_room(room: usize) -> MemoryCarrier<'a> {
        MemoryCarrier {
            room,
            ..MemoryCarrier::default()
        }
    }
}

impl Carrier for MemoryCarrier<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let Ok(n) = targets.fill(self.input) else {
            return IoOutcome::Fault;
        };
        self.input = &self.input[n..];
        io_outcome(n)
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        let Ok(n) = sources.copy_to(&mut self.output, self.room) else {
            return IoOutcome::Fault;
        };
        self.room -= n;
        io_outcome(n)
    }
}

fn io_outcome(n: usize) -> IoOutcome {
    if n == 0 {
        IoOutcome::WouldBlock
    } else {
        IoOutcome::Bytes(n)
    }
}

#[cfg(test)]
mod tests;
