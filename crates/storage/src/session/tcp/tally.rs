//! How much of a command's data has moved, by the headers that the adapter passes up: data that came, and data that was asked for.
//! It promises that only what is in order counts (RFC 7143 §13.18, §13.19), what leaves a hole or comes twice does not, and that a target
//! cannot make it grow. It refuses to judge: whether that was enough, the session knows.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use verbena_iscsi::Terms;
use verbena_wire::iscsi::{Bhs, Lengths, Opcode};

use crate::session::link::Carried;

/// What moved for the commands of one link, by their task tags.
#[derive(Default)]
pub(super) struct Tally {
    /// Bytes of a write that leave without being asked for, if there are so many.
    unasked: u32,
    open: FxHashMap<u32, Carried>,
}

impl Tally {
    pub(super) fn new(terms: &Terms) -> Tally {
        Tally {
            unasked: terms.unasked(),
            open: FxHashMap::default(),
        }
    }

    /// Data came to its place. False if there is none, it is not the next, or it is for nobody: there are `most` commands.
    pub(super) fn came(&mut self, bhs: &Bhs, most: usize) -> bool {
        let len = Lengths::of(bhs).data;
        if len == 0 {
            return false;
        }
        let carried = self.of(bhs, most);
        carried.is_some_and(|carried| count(&mut carried.came, 0, offset(bhs), len))
    }

    /// Data was asked for. False if nobody has it: there are `most` commands.
    pub(super) fn asked(&mut self, bhs: &Bhs, most: usize) -> bool {
        let begin = self.unasked;
        let Some(carried) = self.of(bhs, most) else {
            return false;
        };
        count(&mut carried.left, begin, offset(bhs), word(bhs, 44));
        true
    }

    /// The end of a command, which may bring the last data along.
    pub(super) fn close(&mut self, bhs: &Bhs) -> Carried {
        // Most reads are one PDU: nothing was kept for them.
        let open = if self.open.is_empty() {
            None
        } else {
            self.open.remove(&tag(bhs))
        };
        let mut carried = open.unwrap_or(self.fresh());
        let len = Lengths::of(bhs).data;
        if Opcode::of(bhs) == Some(Opcode::DataIn) && len > 0 {
            count(&mut carried.came, 0, offset(bhs), len);
        }
        carried
    }

    /// Nothing more comes for this tag.
    pub(super) fn forget(&mut self, tag: u32) {
        self.open.remove(&tag);
    }

    /// What has moved for this tag; none if it cannot be a command's, since all have one.
    fn of(&mut self, bhs: &Bhs, most: usize) -> Option<&mut Carried> {
        let (fresh, full) = (self.fresh(), self.open.len() >= most);
        match self.open.entry(tag(bhs)) {
            Entry::Occupied(open) => Some(open.into_mut()),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(free) => Some(free.insert(fresh)),
        }
    }

    fn fresh(&self) -> Carried {
        let left = self.unasked;
        Carried { came: 0, left }
    }
}

/// Counts what is next. Who begins again has a tag that was used before.
fn count(sum: &mut u32, begin: u32, offset: u32, len: u32) -> bool {
    let next = offset == *sum || offset == begin;
    if next {
        *sum = offset.saturating_add(len);
    }
    next
}

/// The initiator task tag.
pub(super) fn tag(bhs: &Bhs) -> u32 {
    word(bhs, 16)
}

/// Where the data belongs that comes, or that is asked for.
fn offset(bhs: &Bhs) -> u32 {
    word(bhs, 40)
}

fn word(bhs: &Bhs, at: usize) -> u32 {
    let bytes = bhs.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests;
