//! Bytes of a response that were copied because a later request of the same queue pair was about to change them.
//! A snapshot holds parts of one response by their offset in it; parts never overlap. What is copied is decided in
//! [`super::responder`].

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use verbena_mem::{Gather, Placement};
use verbena_wire::roce::Psn;

/// Memory of a part beside its bytes: its map entry and its allocation.
const PART_COST: usize = 64;

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
    fn missing(&self, offset: u32, len: u32) -> SmallVec<[(u32, u32); 2]> {
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

    /// Copies the bytes of `source`, the response from `from` on, that `target` overwrites; false if that takes more than `room`.
    pub(super) fn copy_overlap(
        &mut self,
        source: &Gather<'_>,
        from: u32,
        target: &Placement<'_>,
        room: &mut usize,
    ) -> bool {
        let mut kept = true;
        source.overlaps(target, |at, len| {
            kept = kept && self.copy(source, from, (from + at as u32, len as u32), room);
        });
        kept
    }

    /// Copies `len` bytes from `offset` on that are not here; `source` is the response from `from` on. False if that takes more than
    /// `room`.
    pub(super) fn copy(
        &mut self,
        source: &Gather<'_>,
        from: u32,
        (offset, len): (u32, u32),
        room: &mut usize,
    ) -> bool {
        for (at, len) in self.missing(offset, len) {
            let Some(left) = room.checked_sub(len as usize + PART_COST) else {
                return false;
            };
            *room = left;
            let mut bytes = Vec::with_capacity(len as usize);
            // Memory that is not mapped is refused when the response is framed.
            let copied = source.append_to(u64::from(at - from), len as usize, &mut bytes);
            if copied.is_ok() {
                self.put(at, bytes);
            }
        }
        true
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

/// Copied bytes of responses, by the PSN of the response's first packet. None is empty.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Vec<(Psn, Snapshot)>);

impl Snapshots {
    /// The memory they hold.
    pub(super) fn cost(&self) -> usize {
        self.0.iter().map(|(_, snapshot)| snapshot.cost()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The responses that have one.
    pub(super) fn reads(&self) -> impl Iterator<Item = Psn> + '_ {
        self.0.iter().map(|(read, _)| *read)
    }

    /// Keeps those of the responses for which this is true.
    pub(super) fn retain(&mut self, is_needed: impl Fn(Psn) -> bool) {
        let needed = |(read, snapshot): &(Psn, Snapshot)| snapshot.cost() > 0 && is_needed(*read);
        self.0.retain(needed);
    }

    /// Bytes of a response before `offset` have been sent; false if it has no copies.
    pub(super) fn drop_before(&mut self, read: Psn, offset: u32) -> bool {
        let mut all = self.0.iter_mut();
        let found = all.find(|(of, _)| *of == read);
        let has_copies = found.is_some();
        if let Some((_, snapshot)) = found {
            snapshot.drop_before(offset);
        }
        has_copies
    }

    /// That of a response.
    pub(super) fn of(&self, read: Psn) -> Option<&Snapshot> {
        let mut all = self.0.iter();
        all.find(|(of, _)| *of == read).map(|(_, kept)| kept)
    }

    /// Lets `copy` add to that of a response.
    pub(super) fn extend<R>(&mut self, read: Psn, copy: impl FnOnce(&mut Snapshot) -> R) -> R {
        let at = self.0.iter().position(|(of, _)| *of == read);
        let at = at.unwrap_or_else(|| {
            self.0.push((read, Snapshot::default()));
            self.0.len() - 1
        });
        let result = copy(&mut self.0[at].1);
        if self.0[at].1.cost() == 0 {
            self.0.swap_remove(at);
        }
        result
    }
}

#[cfg(test)]
mod tests;
