//! Partial blocks at the ends of a range: read, modified and written back, one at a time. The rest of the block is unchanged. A range has
//! at most two of them, so this is not optimised.

use verbena::Memory;

use crate::blocks::{Blocks, BufferRef, Extent, Request};
use crate::error::Error;
use crate::inflight::Inflight;

/// Access to partial blocks of one disk, with memory for one block.
pub(super) struct PartialBlocks<'f, 'b, B: Blocks> {
    flight: &'f mut Inflight<'b, B>,
    scratch: Memory,
    block: usize,
}

impl<'f, 'b, B: Blocks> PartialBlocks<'f, 'b, B> {
    pub(super) fn new(flight: &'f mut Inflight<'b, B>) -> Result<PartialBlocks<'f, 'b, B>, Error> {
        let block = flight.blocks.geometry().block_size.max(1) as usize;
        Ok(PartialBlocks {
            scratch: flight.blocks.memory(block)?,
            flight,
            block,
        })
    }

    fn load(&mut self, lba: u64, at: u64) -> Result<(), Error> {
        let into = BufferRef::new(&self.scratch, 0);
        let extent = Extent { lba, blocks: 1 };
        let request = Request::Read { at: extent, into };
        self.flight.run_one(request, "a read", at)
    }

    fn store(&mut self, lba: u64, at: u64) -> Result<(), Error> {
        let from = BufferRef::new(&self.scratch, 0);
        let request = Request::Write {
            at: Extent { lba, blocks: 1 },
            from,
            fua: false,
        };
        self.flight.run_one(request, "a write", at)
    }

    /// The block of a byte, the offset in it, and the bytes up to its end, at most `most`.
    fn part(&self, at: u64, most: usize) -> (u64, usize, usize) {
        let inside = (at % self.block as u64) as usize;
        (
            at / self.block as u64,
            inside,
            most.min(self.block - inside),
        )
    }

    /// Reads bytes from the disk.
    pub(super) fn read(&mut self, mut at: u64, mut into: &mut [u8]) -> Result<(), Error> {
        while !into.is_empty() {
            let (lba, inside, len) = self.part(at, into.len());
            self.load(lba, at)?;
            let (now, later) = into.split_at_mut(len);
            self.scratch.read_at(inside, now)?;
            into = later;
            at += len as u64;
        }
        Ok(())
    }

    /// Writes bytes to the disk.
    pub(super) fn write(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (lba, inside, len) = self.part(at, bytes.len());
            if len < self.block {
                self.load(lba, at)?;
            }
            let (now, later) = bytes.split_at(len);
            self.scratch.write_at(inside, now)?;
            self.store(lba, at)?;
            bytes = later;
            at += len as u64;
        }
        Ok(())
    }
}
