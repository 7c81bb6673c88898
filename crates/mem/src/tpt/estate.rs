//! Regions that move from one process to another (V1): what is told of them there, and their place in the successor's table.
//! It promises that a region taken over has the same STag, key and addresses, so that peers and posted requests go on naming it
//! as before. It refuses what plain data cannot tell: windows, touches, registrations under way; and names that are taken.

use verbena_wire::{Stag, To};

use super::index::Purpose;
use super::{Region, Tpt, verified};
use crate::access::Access;
use crate::entry::{Entry, Kind};
use crate::refusal::Misuse;

/// What a successor is told of a region, beside its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estate {
    /// Its name.
    pub stag: Stag,
    /// The address of its first byte as users name it.
    pub start: To,
    /// Bytes.
    pub len: u64,
    /// Its rights.
    pub access: Access,
}

impl Tpt {
    /// What a successor is told of a region (V1). The region stays as it is: who uses it meanwhile, and that nobody binds a
    /// window to it, is for the caller to see to.
    pub fn estate(&self, stag: Stag) -> Result<Estate, Misuse> {
        if self.is_pending(stag) {
            return Err(Misuse::Pending(stag));
        }
        let misuse = Misuse::Stag(stag);
        let entry = self.look(stag).ok_or(misuse)?;
        // M4: an STag whose registrations come and go by requests is more than the region that stands there now.
        if entry.kind != Kind::Region || entry.invalidatable {
            return Err(misuse);
        }
        if entry.one_touch {
            return Err(Misuse::OneTouch(stag));
        }
        let users = self.slot(stag.index()).ok_or(misuse)?.users();
        if users > 0 {
            return Err(Misuse::Busy { stag, users });
        }
        Ok(Estate {
            stag,
            start: entry.start,
            len: entry.len,
            access: entry.access.get(),
        })
    }

    /// Registers a region under an STag that was another process's (V1): the same index and the same key.
    ///
    /// # Safety
    /// As for [`register`](Tpt::register).
    pub unsafe fn register_at(&self, stag: Stag, region: Region) -> Result<Stag, Misuse> {
        self.check_name(stag)?;
        self.install_at(stag, verified(region)?)?;
        Ok(stag)
    }

    /// The table could give this name.
    fn check_name(&self, stag: Stag) -> Result<(), Misuse> {
        // Index 0 names nothing, whatever the range.
        let (first, end) = (self.range.start.max(1), self.range.end);
        if (first..end).contains(&stag.index()) {
            return Ok(());
        }
        let last = end.saturating_sub(1);
        Err(Misuse::Outside { stag, first, last })
    }

    fn install_at(&self, stag: Stag, entry: Entry) -> Result<(), Misuse> {
        let (index, purpose) = (stag.index(), Purpose::Region(entry.pd));
        if !self.indexes.lock().take_at(index, purpose) {
            return Err(Misuse::Taken(stag));
        }
        let slot = self.slot_or_make(index);
        slot.forget_touch();
        // The index is ours alone, so its slot is free, or its last owner is just leaving it.
        let Ok(owned) = slot.claim() else {
            self.indexes.lock().free(index);
            return Err(Misuse::Taken(stag));
        };
        owned.publish(stag.key(), entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
