//! Reads a range of a disk into a sink. Requests complete in any order, the sink gets bytes in the order of the disk. Every block is read
//! once, partial ones included. Memory is bounded by the slots: a late request delays those behind it.

use std::collections::VecDeque;
use std::ops::Range;

use super::{ProgressCounter, ProgressFn, Sink, Slots, TransferOptions, check};
use crate::blocks::{Blocks, BufferRef, Request};
use crate::error::Error;
use crate::inflight::Inflight;

/// One request, in the order of the disk.
struct Piece {
    /// The part that belongs to the range.
    wanted: Range<u64>,
    /// Offset of its first block.
    start: u64,
    ready: bool,
}

/// Reads a range into a sink. Returns the bytes read.
pub fn read<B: Blocks>(
    blocks: &mut B,
    range: Range<u64>,
    sink: &mut dyn Sink,
    pace: TransferOptions,
    watch: &mut ProgressFn<'_>,
) -> Result<u64, Error> {
    let geometry = blocks.geometry();
    check(&geometry, &range)?;
    let total = range.end - range.start;
    if total == 0 {
        return Ok(0);
    }
    let slots = Slots::new(blocks, pace)?;
    let mut flight = Inflight::new(blocks);
    let mut tally = ProgressCounter::new(total, watch);
    let block = u64::from(geometry.block_size.max(1));

    let mut window: VecDeque<Piece> = VecDeque::new();
    // The id of the first piece in the window; a piece's slot follows from its id.
    let mut first = 0_u64;
    let mut next = range.start / block * block;
    while next < range.end || !window.is_empty() {
        while next < range.end && window.len() < slots.depth && flight.has_room() {
            let cover = range.end.div_ceil(block) * block - next;
            let len = cover.min(u64::from(slots.piece));
            let Some(at) = geometry.extent(next, len) else {
                return Err(Error::Setting("the disk's blocks do not fit".into()));
            };
            let id = first + window.len() as u64;
            let slot = (id % slots.depth as u64) as usize;
            let into = BufferRef::new(&slots.memory, slots.offset(slot));
            if !flight.submit(id, Request::Read { at, into })? {
                break;
            }
            window.push_back(Piece {
                wanted: next.max(range.start)..(next + len).min(range.end),
                start: next,
                ready: false,
            });
            next += len;
        }
        let mut came = false;
        for done in flight.reap()? {
            came = true;
            let piece = done.id.checked_sub(first);
            let Some(piece) = piece.and_then(|at| window.get_mut(at as usize)) else {
                continue;
            };
            let at = piece.wanted.start;
            let what = "a read";
            done.result
                .map_err(|failure| Error::Failed { what, at, failure })?;
            piece.ready = true;
        }
        while window.front().is_some_and(|piece| piece.ready) {
            let Some(piece) = window.pop_front() else {
                break;
            };
            let slot = (first % slots.depth as u64) as usize;
            first += 1;
            let skip = (piece.wanted.start - piece.start) as usize;
            let len = (piece.wanted.end - piece.wanted.start) as usize;
            let offset = slots.offset(slot) + skip;
            sink.put(piece.wanted.start, &slots.memory, offset, len)?;
            tally.add(len as u64)?;
        }
        if !came && !flight.is_idle() {
            flight.wait()?;
        }
    }
    Ok(total)
}
