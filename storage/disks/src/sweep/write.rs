//! Writes a source into a range of a disk: consumed in order, written in any order. Bytes outside of the range are unchanged, and the source
//! may end early. There is no flush at the end; the caller does that.

use std::ops::Range;

use super::partial_blocks::PartialBlocks;
use super::{ProgressCounter, ProgressFn, Slots, Source, TransferOptions, check, writable};
use crate::blocks::{Blocks, BufferRef, Request};
use crate::error::Error;
use crate::inflight::Inflight;

/// Writes a source into a range until either ends. Returns the bytes written.
pub fn write<B: Blocks>(
    blocks: &mut B,
    range: Range<u64>,
    source: &mut dyn Source,
    pace: TransferOptions,
    watch: &mut ProgressFn<'_>,
) -> Result<u64, Error> {
    let geometry = blocks.geometry();
    check(&geometry, &range)?;
    writable(&geometry)?;
    let slots = Slots::new(blocks, pace)?;
    let mut flight = Inflight::new(blocks);
    let mut tally = ProgressCounter::new(range.end - range.start, watch);
    let block = u64::from(geometry.block_size.max(1));

    let first_block = range.start.next_multiple_of(block).min(range.end);
    let mut at = range.start;
    if first_block > at {
        at += write_partial(&mut flight, source, &slots, at..first_block)?;
        tally.add(at - range.start)?;
        if at < first_block {
            return Ok(at - range.start);
        }
    }
    let last_block = (range.end / block * block).max(at);
    let (written, rest) = write_blocks(&mut flight, source, &slots, at..last_block, &mut tally)?;
    at += written;
    // The rest of a source that ended within a block.
    if let Some(rest) = rest {
        PartialBlocks::new(&mut flight)?.write(at, &rest)?;
        tally.add(rest.len() as u64)?;
        return Ok(at + rest.len() as u64 - range.start);
    }
    if last_block < range.end {
        let end = write_partial(&mut flight, source, &slots, at..range.end)?;
        tally.add(end)?;
        at += end;
    }
    Ok(at - range.start)
}

/// A partial block. Returns the bytes that the source had.
fn write_partial<B: Blocks>(
    flight: &mut Inflight<'_, B>,
    source: &mut dyn Source,
    slots: &Slots,
    range: Range<u64>,
) -> Result<u64, Error> {
    let len = (range.end - range.start) as usize;
    let got = source.fill(&slots.memory, 0, len)?;
    let mut bytes = vec![0; got];
    slots.memory.read_at(0, &mut bytes)?;
    PartialBlocks::new(flight)?.write(range.start, &bytes)?;
    Ok(got as u64)
}

/// Whole blocks, at depth. Returns the bytes written and, if the source has ended, the partial block that it ended with.
fn write_blocks<B: Blocks>(
    flight: &mut Inflight<'_, B>,
    source: &mut dyn Source,
    slots: &Slots,
    range: Range<u64>,
    tally: &mut ProgressCounter<'_, '_>,
) -> Result<(u64, Option<Vec<u8>>), Error> {
    let geometry = flight.blocks.geometry();
    let block = geometry.block_size.max(1) as usize;
    let mut free: Vec<usize> = (0..slots.depth).rev().collect();
    let mut under_way: Vec<Range<u64>> = vec![0..0; slots.depth];
    let mut next = range.start;
    let mut rest = None;
    // Filled, and not accepted by the disk yet.
    let mut filled: Option<(usize, u64)> = None;
    loop {
        while flight.has_room() {
            let (slot, len) = match filled.take() {
                Some(filled) => filled,
                None => {
                    if next >= range.end || rest.is_some() {
                        break;
                    }
                    let Some(slot) = free.pop() else { break };
                    let want = (range.end - next).min(u64::from(slots.piece)) as usize;
                    let got = source.fill(&slots.memory, slots.offset(slot), want)?;
                    let even = got / block * block;
                    if got < want {
                        let mut end = vec![0; got - even];
                        let offset = slots.offset(slot) + even;
                        slots.memory.read_at(offset, &mut end)?;
                        rest = Some(end);
                    }
                    if even == 0 {
                        free.push(slot);
                        break;
                    }
                    (slot, even as u64)
                }
            };
            let Some(at) = geometry.extent(next, len) else {
                return Err(Error::Setting("the disk's blocks do not fit".into()));
            };
            let from = BufferRef::new(&slots.memory, slots.offset(slot));
            let request = Request::Write {
                at,
                from,
                fua: false,
            };
            if !flight.submit(slot as u64, request)? {
                filled = Some((slot, len));
                break;
            }
            under_way[slot] = next..next + len;
            next += len;
        }
        let ended = (next >= range.end || rest.is_some()) && filled.is_none();
        if ended && flight.is_idle() {
            return Ok((next - range.start, rest));
        }
        let mut bytes = 0;
        for done in flight.reap()? {
            let slot = done.id as usize;
            let Some(part) = under_way.get(slot).cloned() else {
                continue;
            };
            let (what, at) = ("a write", part.start);
            done.result
                .map_err(|failure| Error::Failed { what, at, failure })?;
            free.push(slot);
            bytes += part.end - part.start;
        }
        if bytes > 0 {
            tally.add(bytes)?;
        } else if !flight.is_idle() {
            flight.wait()?;
        }
    }
}
