//! Whoever carries bytes: a socket, a simulated link, a test's hands.
//! A queue pair names the places of the next bytes and a carrier moves them, saying only how many (docs/ARCHITECTURE.md).
//! A carrier refuses to wait and to look at the bytes.

use verbena_mem::{Sources, Targets};

/// What became of one attempt to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// So many, at least one.
    Bytes(usize),
    /// None now: nothing has come, or there is no room.
    Nothing,
    /// None ever: the peer has closed its direction. Only when reading.
    End,
    /// None ever: the connection broke.
    Broken,
    /// A place is not memory any more.
    Fault,
}

/// Moves bytes without waiting.
pub trait Carrier {
    /// Fills the places, in order, with the bytes that came next.
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved;

    /// Sends the bytes of the sources, in order.
    fn write(&mut self, sources: &Sources<'_>) -> Moved;

    /// Bytes written that the peer's process cannot have read, known when the peer has closed its direction; `None` where
    /// the carrier cannot tell.
    fn undelivered(&self) -> Option<u64> {
        None
    }

    /// Nothing can be done before so many further bytes are there: nobody need be woken for fewer. A wish, which holds until the next one.
    fn expect(&mut self, _bytes: usize) {}
}

/// A carrier in memory: what came, and room for what goes. For tests, simulations and fuzzers.
#[derive(Debug, Default)]
pub struct Hand<'a> {
    /// What came and was not read.
    pub came: &'a [u8],
    /// What went.
    pub went: Vec<u8>,
    /// Bytes that `went` still takes.
    pub room: usize,
}

impl<'a> Hand<'a> {
    /// Holds out what came.
    pub fn with(came: &'a [u8]) -> Hand<'a> {
        Hand {
            came,
            ..Hand::default()
        }
    }

    /// Takes up to `room` bytes.
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
