//! Bytes of a response that were copied because a later request of the same queue pair was about to change them.
//! A snapshot holds parts of one response by their offset in it; parts never overlap. What is copied is decided in
//! [`super::responder`].

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Memory of a part beside its bytes: its map entry and its allocation.
pub(super) const PART_COST: usize = 64;

/// Parts of one response.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Snapshot {
    parts: BTreeMap<u32, Vec<u8>>,
    bytes: usize,
}

impl Snapshot {
    /// The memory it holds.
    pub(super) fn cost(&self) -> usize {
        self.bytes + self.parts.len() * PART_COST
    }

    /// The runs of `offset..offset + len` that are not here.
    pub(super) fn missing(&self, offset: u32, len: u32) -> SmallVec<[(u32, u32); 2]> {
        let (mut at, end) = (u64::from(offset), u64::from(offset) + u64::from(len));
        let mut runs = SmallVec::new();
        for (from, to) in self.parts_in(offset, len) {
            if at < from {
                runs.push((at as u32, (from - at) as u32));
            }
            at = at.max(to);
        }
        if at < end {
            runs.push((at as u32, (end - at) as u32));
        }
        runs
    }

    /// Any byte of `offset..offset + len` is here.
    pub(super) fn has_any(&self, offset: u32, len: u32) -> bool {
        self.parts_in(offset, len).next().is_some()
    }

    /// Every byte of `offset..offset + len` is here.
    pub(super) fn has_all(&self, offset: u32, len: u32) -> bool {
        !self.parts.is_empty() && self.missing(offset, len).is_empty()
    }

    /// Adds bytes that are not here, from `offset` on.
    pub(super) fn put(&mut self, offset: u32, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.parts.insert(offset, bytes);
    }

    /// Writes the bytes that are here over those of the response that begin at `offset`.
    pub(super) fn overlay(&self, offset: u32, to: &mut [u8]) {
        let (begin, end) = (u64::from(offset), u64::from(offset) + to.len() as u64);
        for (from, until) in self.parts_in(offset, to.len() as u32) {
            let (low, high) = (from.max(begin), until.min(end));
            let part = self.parts.get(&(from as u32));
            let Some(part) =
                part.and_then(|p| p.get((low - from) as usize..(high - from) as usize))
            else {
                continue;
            };
            to[(low - begin) as usize..(high - begin) as usize].copy_from_slice(part);
        }
    }

    /// Bytes before `offset` have been framed.
    pub(super) fn drop_before(&mut self, offset: u32) {
        while let Some(first) = self.parts.first_entry() {
            if u64::from(*first.key()) + first.get().len() as u64 > u64::from(offset) {
                return;
            }
            self.bytes -= first.remove().len();
        }
    }

    /// Begin and end of every part that has a byte of `offset..offset + len`.
    fn parts_in(&self, offset: u32, len: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = u64::from(offset) + u64::from(len);
        let before = self.parts.range(..offset).next_back();
        let inside = self.parts.range(offset..);
        before
            .into_iter()
            .chain(inside)
            .map(|(from, part)| (u64::from(*from), u64::from(*from) + part.len() as u64))
            .take_while(move |(from, _)| *from < end)
            .filter(move |(_, to)| *to > u64::from(offset))
    }
}

#[cfg(test)]
mod tests;
