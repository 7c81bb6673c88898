//! Whole ranges of a disk, many requests at a time: read, written, copied, compared.
//! It promises that ranges may begin and end anywhere, that nothing is under way afterwards, and that a failure names its place.
//! It refuses to show anything: whoever watches is told how far it is, and may end it.
//!
//! Reading order: `ends` (parts of blocks) → `stream` (where bytes come from and go to) → [`read`] → [`write()`] → [`copy`].

mod copy;
mod ends;
mod read;
mod stream;
mod write;

use std::ops::{ControlFlow, Range};

use verbena::Memory;

use crate::blocks::{Blocks, Geometry};
use crate::error::Error;

pub use copy::{compare, copy};
pub use read::read;
pub use stream::{Check, Inlet, Outlet, Reader, Sink, Source, Writer};
pub use write::write;

/// Requests at a time, if nobody says.
const DEPTH: usize = 32;
/// Bytes per request, if nobody says.
const PIECE: u32 = 256 << 10;
/// Bytes per request, at the most.
const MAX_PIECE: u32 = 16 << 20;
/// Memory of one pass, at the most; with deep queues and long pieces, pieces give way.
const MAX_MEMORY: usize = 256 << 20;

/// How much at a time; 0 leaves it to us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// Requests.
    pub depth: usize,
    /// Bytes per request.
    pub piece: u32,
}

impl Pace {
    /// Requests and bytes per request for this disk.
    fn settle(self, geometry: &Geometry, limit: usize) -> (usize, u32) {
        let choose = |wish: usize, usual: usize| if wish == 0 { usual } else { wish };
        let depth = choose(self.depth, DEPTH).clamp(1, limit.max(1));
        let usual = choose(geometry.optimal as usize, PIECE as usize);
        let piece = choose(self.piece as usize, usual);
        let piece = piece.min(MAX_PIECE as usize).min(MAX_MEMORY / depth);
        (depth, geometry.piece(piece as u32))
    }
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes there are to do.
    pub total: u64,
}

/// Whoever watches a pass; a break ends it with [`Error::Stopped`] once nothing is under way.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Slots of equal length in one piece of memory.
struct Slots {
    memory: Memory,
    piece: u32,
    depth: usize,
}

impl Slots {
    fn new<B: Blocks>(blocks: &mut B, pace: Pace) -> Result<Slots, Error> {
        let (depth, piece) = pace.settle(&blocks.geometry(), blocks.depth());
        Ok(Slots {
            memory: blocks.memory(depth * piece as usize)?,
            piece,
            depth,
        })
    }

    fn offset(&self, slot: usize) -> usize {
        slot * self.piece as usize
    }
}

/// Progress that is told.
struct Tally<'a, 'w> {
    progress: Progress,
    watch: &'a mut Watch<'w>,
}

impl<'a, 'w> Tally<'a, 'w> {
    fn new(total: u64, watch: &'a mut Watch<'w>) -> Tally<'a, 'w> {
        let progress = Progress { done: 0, total };
        Tally { progress, watch }
    }

    fn add(&mut self, bytes: u64) -> Result<(), Error> {
        self.progress.done += bytes;
        let Progress { done, total } = self.progress;
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped { done, total }),
        }
    }
}

/// Refuses a range that the disk does not have. Every pass asks; whoever must destroy something before one asks before that.
pub fn check(geometry: &Geometry, range: &Range<u64>) -> Result<(), Error> {
    let (offset, len) = (range.start, range.end.saturating_sub(range.start));
    let limit = geometry.bytes();
    let inside = range.start <= range.end && geometry.holds(offset, len);
    inside
        .then_some(())
        .ok_or(Error::Range { offset, len, limit })
}

fn writable(geometry: &Geometry) -> Result<(), Error> {
    (!geometry.read_only).then_some(()).ok_or(Error::ReadOnly)
}

#[cfg(test)]
mod tests;
