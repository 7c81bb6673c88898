//! Copies or compares a range of one disk with another, both at depth. There is one copy in memory, or none where the second disk accepts
//! the first one's memory. Both offsets have to be congruent modulo the larger block size.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use verbena::Memory;

use super::partial_blocks::PartialBlocks;
use super::stream::compare_bytes;
use super::{ProgressCounter, ProgressFn, Slots, TransferOptions, check, writable};
use crate::blocks::{Blocks, BufferRef, Request};
use crate::error::Error;
use crate::inflight::Inflight;

/// Polling interval for two disks of which the second has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Copies a range of one disk to an offset of another. Returns the bytes copied.
pub fn copy<A: Blocks, B: Blocks>(
    from: &mut A,
    range: Range<u64>,
    to: &mut B,
    at: u64,
    pace: TransferOptions,
    watch: &mut ProgressFn<'_>,
) -> Result<u64, Error> {
    writable(&to.geometry())?;
    pass(from, range, to, at, pace, watch, Second::Write)
}

/// Compares a range of one disk with the same length at an offset of another. Returns the bytes compared.
pub fn compare<A: Blocks, B: Blocks>(
    from: &mut A,
    range: Range<u64>,
    to: &mut B,
    at: u64,
    pace: TransferOptions,
    watch: &mut ProgressFn<'_>,
) -> Result<u64, Error> {
    pass(from, range, to, at, pace, watch, Second::Compare)
}

/// The operation on the second disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    Write,
    Compare,
}

fn pass<A: Blocks, B: Blocks>(
    from: &mut A,
    range: Range<u64>,
    to: &mut B,
    at: u64,
    pace: TransferOptions,
    watch: &mut ProgressFn<'_>,
    second: Second,
) -> Result<u64, Error> {
    let (here, there) = (from.geometry(), to.geometry());
    check(&here, &range)?;
    let total = range.end - range.start;
    check(&there, &(at..at.saturating_add(total)))?;
    // Block sizes are powers of two: a multiple of the larger is a multiple of the smaller.
    let block = u64::from(here.block_size.max(there.block_size).max(1));
    if !range.start.abs_diff(at).is_multiple_of(block) {
        let (from, to) = (range.start, at);
        return Err(Error::Misaligned { from, to, block });
    }
    let mut pace = pace;
    pace.piece = match pace.piece {
        0 => 0,
        piece => piece.max(block as u32),
    };
    let mut slots = Slots::new(from, pace)?;
    slots.piece = there.request_size(slots.piece).max(block as u32);
    if slots.piece > here.request_size(u32::MAX) || slots.piece > there.request_size(u32::MAX) {
        let what = format!("blocks of {block} bytes are more than one request of the other disk");
        return Err(Error::Setting(what));
    }
    slots.piece -= slots.piece % block as u32;
    let shared = second == Second::Write && to.accepts_memory(&slots.memory);
    let other = match shared {
        true => None,
        false => Some(to.memory(slots.depth * slots.piece as usize)?),
    };
    let mut job = Pass {
        from: Inflight::new(from),
        to: Inflight::new(to),
        slots,
        other,
        second,
        from_offset: range.start,
        to_offset: at,
        progress: ProgressCounter::new(total, watch),
    };
    let start = range.start.next_multiple_of(block).min(range.end);
    let end = (range.end / block * block).max(start);
    job.copy_partial(range.start..start)?;
    job.copy_blocks(start..end)?;
    job.copy_partial(end..range.end)?;
    Ok(total)
}

struct Pass<'a, 'w, 'x, 'y, A: Blocks, B: Blocks> {
    from: Inflight<'x, A>,
    to: Inflight<'y, B>,
    slots: Slots,
    /// The second disk's memory, if it needs its own.
    other: Option<Memory>,
    second: Second,
    /// Corresponding offsets of both disks.
    from_offset: u64,
    to_offset: u64,
    progress: ProgressCounter<'a, 'w>,
}

impl<A: Blocks, B: Blocks> Pass<'_, '_, '_, '_, A, B> {
    fn to_offset(&self, here: u64) -> u64 {
        self.to_offset + (here - self.from_offset)
    }

    /// A partial block at an end.
    fn copy_partial(&mut self, range: Range<u64>) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let len = range.end - range.start;
        let mut bytes = vec![0; len as usize];
        PartialBlocks::new(&mut self.from)?.read(range.start, &mut bytes)?;
        let there = self.to_offset(range.start);
        let mut ends = PartialBlocks::new(&mut self.to)?;
        match self.second {
            Second::Write => ends.write(there, &bytes)?,
            Second::Compare => {
                let mut found = vec![0; len as usize];
                ends.read(there, &mut found)?;
                compare_bytes(there, &bytes, &found)?;
            }
        }
        self.progress.add(len)
    }

    /// Whole blocks, at depth.
    fn copy_blocks(&mut self, range: Range<u64>) -> Result<(), Error> {
        let mut free: Vec<usize> = (0..self.slots.depth).rev().collect();
        let mut held: Vec<Range<u64>> = vec![0..0; self.slots.depth];
        let mut ready: VecDeque<usize> = VecDeque::new();
        let mut next = range.start;
        while free.len() < held.len() || next < range.end {
            while next < range.end && self.from.has_room() {
                let Some(slot) = free.pop() else { break };
                let end = (next + u64::from(self.slots.piece)).min(range.end);
                if !self.fetch(slot, next..end)? {
                    free.push(slot);
                    break;
                }
                held[slot] = next..end;
                next = end;
            }
            let mut moved = false;
            for done in self.from.reap()? {
                moved = true;
                let slot = done.id as usize;
                let (what, at) = ("a read", held[slot].start);
                done.result
                    .map_err(|failure| Error::Failed { what, at, failure })?;
                ready.push_back(slot);
            }
            while let Some(&slot) = ready.front() {
                if !self.to.has_room() || !self.submit_second(slot, held[slot].clone())? {
                    break;
                }
                ready.pop_front();
            }
            let mut bytes = 0;
            let landed: Vec<_> = self.to.reap()?.collect();
            for done in landed {
                let slot = done.id as usize;
                let part = held[slot].clone();
                let (what, at) = ("a request", self.to_offset(part.start));
                done.result
                    .map_err(|failure| Error::Failed { what, at, failure })?;
                self.finish(slot, part.clone())?;
                bytes += part.end - part.start;
                free.push(slot);
            }
            if bytes > 0 {
                self.progress.add(bytes)?;
            } else if !moved {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn fetch(&mut self, slot: usize, part: Range<u64>) -> Result<bool, Error> {
        let geometry = self.from.blocks.geometry();
        let Some(at) = geometry.extent(part.start, part.end - part.start) else {
            return Err(Error::Setting("the disk's blocks do not fit".into()));
        };
        let into = BufferRef::new(&self.slots.memory, self.slots.offset(slot));
        self.from.submit(slot as u64, Request::Read { at, into })
    }

    /// Submits a piece that was read to the second disk. `false` if that is full.
    fn submit_second(&mut self, slot: usize, part: Range<u64>) -> Result<bool, Error> {
        let geometry = self.to.blocks.geometry();
        let len = part.end - part.start;
        let Some(at) = geometry.extent(self.to_offset(part.start), len) else {
            return Err(Error::Setting("the disk's blocks do not fit".into()));
        };
        let offset = self.slots.offset(slot);
        let memory = self.other.as_ref().unwrap_or(&self.slots.memory);
        let place = BufferRef::new(memory, offset);
        let request = match (self.second, &self.other) {
            (Second::Compare, _) => Request::Read { at, into: place },
            (Second::Write, other) => {
                if let Some(other) = other {
                    let mut bytes = vec![0; len as usize];
                    self.slots.memory.read_at(offset, &mut bytes)?;
                    other.write_at(offset, &bytes)?;
                }
                Request::Write {
                    at,
                    from: place,
                    fua: false,
                }
            }
        };
        self.to.submit(slot as u64, request)
    }

    /// Compares what the second disk returned.
    fn finish(&mut self, slot: usize, part: Range<u64>) -> Result<(), Error> {
        let (Second::Compare, Some(other)) = (self.second, &self.other) else {
            return Ok(());
        };
        let len = (part.end - part.start) as usize;
        let (mut expected, mut found) = (vec![0; len], vec![0; len]);
        let offset = self.slots.offset(slot);
        self.slots.memory.read_at(offset, &mut expected)?;
        other.read_at(offset, &mut found)?;
        compare_bytes(self.to_offset(part.start), &expected, &found)
    }

    /// Sleeps until either disk may have a completion.
    fn wait(&mut self) -> Result<(), Error> {
        match (self.from.is_idle(), self.to.is_idle()) {
            (true, true) => Ok(()),
            (true, false) => self.to.wait(),
            (false, true) => self.from.wait(),
            (false, false) => match self.to.blocks.arm()? {
                Some(doorbell) => self.from.blocks.wait(&[doorbell], None),
                None => self.from.blocks.wait(&[], Some(POLL_INTERVAL)),
            },
        }
    }
}
