//! The bytes of a command's data that were moved, from the headers that the adapter delivers: Data-In and R2T. Only contiguous data is
//! counted (RFC 7143 §13.18, §13.19); gaps and repetitions are not. The table has no more entries than there are commands.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use verbena_iscsi::Terms;
use verbena_storage_wire::iscsi::{Bhs, Lengths, Opcode};

use crate::session::link::CommandTransfer;

/// Bytes moved for the commands of one link, by initiator task tag.
#[derive(Default)]
pub(super) struct Transfers {
    /// Most bytes of a write that are sent without an R2T.
    unsolicited: u32,
    open: FxHashMap<u32, CommandTransfer>,
}

impl Transfers {
    pub(super) fn new(terms: &Terms) -> Transfers {
        Transfers {
            unsolicited: terms.max_unsolicited(),
            open: FxHashMap::default(),
        }
    }

    /// Counts a Data-In. False if it has no data, is not contiguous, or belongs to no command: there are `most` of them.
    pub(super) fn count_data_in(&mut self, bhs: &Bhs, most: usize) -> bool {
        let len = Lengths::of(bhs).data;
        if len == 0 {
            return false;
        }
        let carried = self.of(bhs, most);
        carried.is_some_and(|carried| count(&mut carried.received, 0, offset(bhs), len))
    }

    /// Counts an R2T. False if it belongs to no command: there are `most` of them.
    pub(super) fn count_r2t(&mut self, bhs: &Bhs, most: usize) -> bool {
        let begin = self.unsolicited;
        let Some(carried) = self.of(bhs, most) else {
            return false;
        };
        count(&mut carried.sent, begin, offset(bhs), word(bhs, 44));
        true
    }

    /// Ends a command with its response, which may be a Data-In with data.
    pub(super) fn close(&mut self, bhs: &Bhs) -> CommandTransfer {
        // Most reads are one PDU, for which there is no entry.
        let open = if self.open.is_empty() {
            None
        } else {
            self.open.remove(&tag(bhs))
        };
        let mut carried = open.unwrap_or(self.new_entry());
        let len = Lengths::of(bhs).data;
        if Opcode::of(bhs) == Some(Opcode::DataIn) && len > 0 {
            count(&mut carried.received, 0, offset(bhs), len);
        }
        carried
    }

    /// Removes a tag.
    pub(super) fn remove(&mut self, tag: u32) {
        self.open.remove(&tag);
    }

    /// The entry of a tag, or a new one; `None` if there are as many entries as commands.
    fn of(&mut self, bhs: &Bhs, most: usize) -> Option<&mut CommandTransfer> {
        let (fresh, full) = (self.new_entry(), self.open.len() >= most);
        match self.open.entry(tag(bhs)) {
            Entry::Occupied(open) => Some(open.into_mut()),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(free) => Some(free.insert(fresh)),
        }
    }

    fn new_entry(&self) -> CommandTransfer {
        let left = self.unsolicited;
        CommandTransfer {
            received: 0,
            sent: left,
        }
    }
}

/// Counts contiguous data. An offset equal to `begin` restarts the count: the tag is used by a new command.
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

/// Buffer offset of a Data-In or R2T.
fn offset(bhs: &Bhs) -> u32 {
    word(bhs, 40)
}

fn word(bhs: &Bhs, at: usize) -> u32 {
    let bytes = bhs.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests;
