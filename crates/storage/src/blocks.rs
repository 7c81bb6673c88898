//! A disk as everything in this crate sees it: requests on whole blocks, started now and completed later, in any order.
//! Payload lies in registered memory, so that it goes between a descriptor and the wire without a copy of ours.
//! It refuses threads: whoever owns the disk drives it from one loop.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use verbena::Memory;

use crate::error::Error;

/// What a disk is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks there are.
    pub blocks: u64,
    /// Bytes per block: a power of two.
    pub block_size: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Takes [`Request::Unmap`].
    pub can_unmap: bool,
    /// Takes [`Request::Zero`].
    pub can_zero: bool,
    /// Bytes per request that the disk likes best; 0 if it does not say.
    pub optimal: u32,
    /// Bytes that one request may carry: at least a block.
    pub maximal: u32,
    /// Blocks that one request without payload may name (unmap, zero): at least one.
    pub bulk: u32,
}

impl Geometry {
    /// Bytes there are; a size that no offset can name is cut off.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size))
    }

    /// Whole blocks that one request may carry, in bytes, and no more than `most` (but a block at the least).
    pub fn piece(&self, most: u32) -> u32 {
        let block = self.block_size.max(1);
        (self.maximal.min(most) / block).max(1) * block
    }

    /// The blocks of a run of bytes, if it begins and ends between blocks.
    pub fn extent(&self, offset: u64, len: u64) -> Option<Extent> {
        let block = u64::from(self.block_size.max(1));
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let blocks = u32::try_from(len / block).ok()?;
        whole.then_some(Extent {
            lba: offset / block,
            blocks,
        })
    }

    /// Whether a run of bytes lies on the disk.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.bytes())
    }
}

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// Where payload begins in memory that came from [`Blocks::memory`].
#[derive(Debug, Clone)]
pub struct Place {
    /// The memory; a handle, cheap to clone.
    pub memory: Memory,
    /// The first byte.
    pub offset: usize,
}

impl Place {
    /// A place in this memory.
    pub fn new(memory: &Memory, offset: usize) -> Place {
        Place {
            memory: memory.clone(),
            offset,
        }
    }
}

/// What a disk is asked to do.
#[derive(Debug, Clone)]
pub enum Request {
    /// Blocks into memory.
    Read {
        /// Which.
        at: Extent,
        /// Where they go.
        into: Place,
    },
    /// Memory into blocks.
    Write {
        /// Which.
        at: Extent,
        /// Where they come from.
        from: Place,
        /// Complete only when it outlives a power cut.
        fua: bool,
    },
    /// Whatever was written and completed before outlives a power cut.
    Flush,
    /// Nobody needs what is in these blocks.
    Unmap(Extent),
    /// These blocks become zero, and keep their place on a thin disk.
    Zero(Extent),
}

impl Request {
    /// What it is called, and the byte of the disk where it begins.
    pub(crate) fn named(&self, block_size: u32) -> (&'static str, u64) {
        let byte = |at: &Extent| at.lba.saturating_mul(block_size.into());
        match self {
            Request::Read { at, .. } => ("a read", byte(at)),
            Request::Write { at, .. } => ("a write", byte(at)),
            Request::Flush => ("a flush", 0),
            Request::Unmap(at) => ("an unmap", byte(at)),
            Request::Zero(at) => ("a write of zeros", byte(at)),
        }
    }
}

/// Why one request failed; the disk goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The blocks cannot be read or written.
    #[error("the target's medium failed: {0}")]
    Medium(String),
    /// Writes are refused.
    #[error("the target refuses writes: the disk is write-protected")]
    ReadOnly,
    /// A thin disk has no room left.
    #[error("the target has no space left for this disk")]
    NoSpace,
    /// The request makes no sense to the disk.
    #[error("the target does not take the request: {0}")]
    Refused(String),
    /// The disk was lost before the request was done: it may have happened or not.
    #[error("the disk was lost before the request was done: {0}")]
    Lost(String),
    /// Whoever asked for it took it back before it was done: it may have happened or not.
    #[error("the request was cancelled before it was done")]
    Cancelled,
}

/// A request that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The number it was started with.
    pub id: u64,
    /// How it ended.
    pub result: Result<(), Failure>,
}

/// A disk with one owner.
///
/// An `Err` of any method but [`submit`](Blocks::submit) means that the disk is lost; a request that fails is a [`Done`].
pub trait Blocks {
    /// What it is like.
    fn geometry(&self) -> Geometry;

    /// Memory for payload of its requests, zeroed.
    fn memory(&mut self, len: usize) -> Result<Memory, Error>;

    /// Whether it takes payload in this memory, which another disk may have given.
    fn takes(&self, _memory: &Memory) -> bool {
        false
    }

    /// Starts a request, which holds its memory until its id comes back in [`poll`](Blocks::poll). The owner sees to it that
    /// ids under way differ. With [`depth`](Blocks::depth) of them under way it refuses with [`Error::Full`].
    fn submit(&mut self, id: u64, request: Request) -> Result<(), Error>;

    /// Adds what has been completed, without waiting.
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error>;

    /// Sleeps until something may have completed, one of `beside` is readable, or the time is over.
    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error>;

    /// A descriptor that is readable when something may have completed since the last poll, for who waits for two disks.
    /// Where there is none, come back soon.
    fn arm(&mut self) -> Result<Option<BorrowedFd<'_>>, Error> {
        Ok(None)
    }

    /// Requests that may be under way; may change, and is at least 1.
    fn depth(&self) -> usize;
}
