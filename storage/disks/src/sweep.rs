//! Operations on whole ranges of a disk with many requests at a time: read, write, copy, compare. Ranges may begin and end at any byte, no
//! request is outstanding after a return, and an error contains the offset. Progress is reported to a callback, which may stop the pass.
//!
//! Reading order: `partial_blocks` (partial blocks) → `stream` (sources and sinks) → [`read()`] → [`write()`] → [`copy()`].

mod copy;
mod partial_blocks;
mod read;
mod stream;
mod write;

use std::ops::{ControlFlow, Range};

use verbena::Memory;

use crate::blocks::{Blocks, Geometry};
use crate::error::Error;

pub use copy::{compare, copy};
pub use read::read;
pub use stream::{CompareSink, FdSink, FdSource, Reader, Sink, Source, Writer};
pub use write::write;

/// Default number of outstanding requests.
const DEPTH: usize = 32;
/// Default bytes per request.
const PIECE: u32 = 256 << 10;
/// Most bytes per request.
const MAX_PIECE: u32 = 16 << 20;
/// Most memory of one pass; at large depths the piece size is reduced.
const MAX_MEMORY: usize = 256 << 20;

/// Depth and request size; 0 selects a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferOptions {
    /// Outstanding requests.
    pub depth: usize,
    /// Bytes per request.
    pub piece: u32,
}

impl TransferOptions {
    /// Depth and bytes per request for this disk.
    fn resolve(self, geometry: &Geometry, limit: usize) -> (usize, u32) {
        let choose = |wish: usize, usual: usize| if wish == 0 { usual } else { wish };
        let depth = choose(self.depth, DEPTH).clamp(1, limit.max(1));
        let usual = choose(geometry.optimal as usize, PIECE as usize);
        let piece = choose(self.piece as usize, usual);
        let piece = piece.min(MAX_PIECE as usize).min(MAX_MEMORY / depth);
        (depth, geometry.request_size(piece as u32))
    }
}

/// Progress of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

/// Progress callback; `Break` ends the pass with [`Error::Stopped`] once nothing is outstanding.
pub type ProgressFn<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Buffers of equal length in one region.
struct Slots {
    memory: Memory,
    piece: u32,
    depth: usize,
}

impl Slots {
    fn new<B: Blocks>(blocks: &mut B, pace: TransferOptions) -> Result<Slots, Error> {
        let (depth, piece) = pace.resolve(&blocks.geometry(), blocks.depth());
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

/// Progress, with its callback.
struct ProgressCounter<'a, 'w> {
    progress: Progress,
    watch: &'a mut ProgressFn<'w>,
}

impl<'a, 'w> ProgressCounter<'a, 'w> {
    fn new(total: u64, watch: &'a mut ProgressFn<'w>) -> ProgressCounter<'a, 'w> {
        let progress = Progress { done: 0, total };
        ProgressCounter { progress, watch }
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

/// Checks that a range lies on the disk. Every pass does; a caller that destroys something before a pass checks before that.
pub fn check(geometry: &Geometry, range: &Range<u64>) -> Result<(), Error> {
    let (offset, len) = (range.start, range.end.saturating_sub(range.start));
    let limit = geometry.bytes();
    let inside = range.start <= range.end && geometry.contains(offset, len);
    inside
        .then_some(())
        .ok_or(Error::Range { offset, len, limit })
}

fn writable(geometry: &Geometry) -> Result<(), Error> {
    (!geometry.read_only).then_some(()).ok_or(Error::ReadOnly)
}

#[cfg(test)]
mod tests;
