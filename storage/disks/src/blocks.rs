//! The interface of a disk in this crate: requests on whole blocks that are submitted and complete later, in any order. Payload is in
//! registered memory, so that it moves between there and the network without a copy. A disk has one owner, which drives it from one loop.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use verbena::Memory;

use crate::error::{Error, Failure};

/// Properties of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes per block: a power of two.
    pub block_size: u32,
    /// Write-protected.
    pub read_only: bool,
    /// Supports [`Request::Unmap`].
    pub can_unmap: bool,
    /// Supports [`Request::Zero`].
    pub can_zero: bool,
    /// Optimal transfer length in bytes; 0 if unknown.
    pub optimal: u32,
    /// Most bytes of one request: at least a block.
    pub maximal: u32,
    /// Most blocks of one request without payload (unmap, zero): at least one.
    pub max_bulk_blocks: u32,
}

impl Geometry {
    /// Size in bytes, saturating.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size))
    }

    /// The largest multiple of the block size that one request may carry and that is at most `most`, but at least one block.
    pub fn request_size(&self, most: u32) -> u32 {
        let block = self.block_size.max(1);
        (self.maximal.min(most) / block).max(1) * block
    }

    /// The blocks of a byte range, if it is aligned to blocks.
    pub fn extent(&self, offset: u64, len: u64) -> Option<Extent> {
        let block = u64::from(self.block_size.max(1));
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let blocks = u32::try_from(len / block).ok()?;
        whole.then_some(Extent {
            lba: offset / block,
            blocks,
        })
    }

    /// Whether a byte range lies on the disk.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.bytes())
    }
}

/// A range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// Start of payload in memory from [`Blocks::memory`].
#[derive(Debug, Clone)]
pub struct BufferRef {
    /// The memory; a handle, cheap to clone.
    pub memory: Memory,
    /// The first byte.
    pub offset: usize,
}

impl BufferRef {
    /// A place in this memory.
    pub fn new(memory: &Memory, offset: usize) -> BufferRef {
        BufferRef {
            memory: memory.clone(),
            offset,
        }
    }
}

/// A request to a disk.
#[derive(Debug, Clone)]
pub enum Request {
    /// Reads blocks into memory.
    Read {
        /// The blocks.
        at: Extent,
        /// Destination.
        into: BufferRef,
    },
    /// Writes blocks from memory.
    Write {
        /// The blocks.
        at: Extent,
        /// Source.
        from: BufferRef,
        /// Force unit access: completes only when the data is on stable storage.
        fua: bool,
    },
    /// Brings all completed writes to stable storage.
    Flush,
    /// Deallocates these blocks.
    Unmap(Extent),
    /// Writes zeros; the blocks stay allocated on a thin-provisioned disk.
    Zero(Extent),
}

impl Request {
    /// Its name in messages, and the byte of the disk where it begins.
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

/// A completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The id it was submitted with.
    pub id: u64,
    /// Its result.
    pub result: Result<(), Failure>,
}

/// A disk with one owner.
///
/// An `Err` of any method but [`submit`](Blocks::submit) means that the disk is lost; a request that fails is a [`Done`].
pub trait Blocks {
    /// Its properties.
    fn geometry(&self) -> Geometry;

    /// Zeroed memory for payload.
    fn memory(&mut self, len: usize) -> Result<Memory, Error>;

    /// Whether it accepts payload in this memory, which may come from another disk.
    fn accepts_memory(&self, _memory: &Memory) -> bool {
        false
    }

    /// Submits a request, which holds its memory until its id is returned by [`poll`](Blocks::poll). Ids of outstanding requests must
    /// differ. With [`depth`](Blocks::depth) requests outstanding, fails with [`Error::Full`].
    fn submit(&mut self, id: u64, request: Request) -> Result<(), Error>;

    /// Appends completed requests, without waiting.
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error>;

    /// Sleeps until something may have completed, one of `beside` is readable, or the time is over.
    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error>;

    /// A descriptor that is readable when something may have completed since the last poll, to wait for two disks at once. With `None`
    /// the caller has to poll periodically.
    fn arm(&mut self) -> Result<Option<BorrowedFd<'_>>, Error> {
        Ok(None)
    }

    /// Most requests outstanding; may change, and is at least 1.
    fn depth(&self) -> usize;
}
