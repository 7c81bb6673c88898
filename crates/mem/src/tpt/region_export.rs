//! Export and import of regions for a handover to another process (V1).
//! An imported region has the same STag, key and addresses, so that peers and posted requests use it as before. One-touch regions, pending
//! entries, registrations by work request and regions with windows that are not exported too stay; an STag whose index is in use cannot be
//! imported.

use verbena_wire::{Stag, To};

use super::index::Purpose;
use super::{Region, Tpt};
use crate::access::Access;
use crate::entry::{Entry, Kind};
use crate::refusal::Misuse;
use crate::slot::Owned;

/// A region as another process needs it, besides its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionExport {
    /// Its STag.
    pub stag: Stag,
    /// The address of its first byte in requests.
    pub start: To,
    /// Bytes.
    pub len: u64,
    /// Its rights.
    pub access: Access,
}

impl Tpt {
    /// Exports a region to which no window is bound (V1). The region stays as it is: the caller sees to it that it is not used meanwhile.
    pub fn export_region(&self, stag: Stag) -> Result<RegionExport, Misuse> {
        self.export_region_with_windows(stag, 0)
    }

    /// The same for a region to which `windows` windows are bound, all of which [`export_window`](Tpt::export_window) exports.
    pub fn export_region_with_windows(
        &self,
        stag: Stag,
        windows: u32,
    ) -> Result<RegionExport, Misuse> {
        if self.is_pending(stag) {
            return Err(Misuse::Pending(stag));
        }
        let misuse = Misuse::Stag(stag);
        let entry = self.find_entry(stag).ok_or(misuse)?;
        // M4: an STag for registration by work request has state beyond its current region.
        if entry.kind != Kind::Region || entry.invalidatable {
            return Err(misuse);
        }
        if entry.one_touch {
            return Err(Misuse::OneTouch(stag));
        }
        let users = self.slot(stag.index()).ok_or(misuse)?.users();
        if users != windows {
            let windows = users.saturating_sub(windows);
            return Err(Misuse::BoundWindows { stag, windows });
        }
        Ok(RegionExport {
            stag,
            start: entry.start,
            len: entry.len,
            access: entry.access.get(),
        })
    }

    /// Registers a region under the STag that it had in another process (V1): the same index and the same key.
    ///
    /// # Safety
    /// As for [`register`](Tpt::register).
    pub unsafe fn register_at(&self, stag: Stag, region: Region) -> Result<Stag, Misuse> {
        self.check_index(stag)?;
        self.install_at(stag, self.checked_entry(region)?)?;
        Ok(stag)
    }

    /// The STag's index is in the table's range.
    pub(super) fn check_index(&self, stag: Stag) -> Result<(), Misuse> {
        // Index 0 is not used, whatever the range.
        let (first, end) = (self.range.start.max(1), self.range.end);
        if (first..end).contains(&stag.index()) {
            return Ok(());
        }
        let last = end.saturating_sub(1);
        Err(Misuse::IndexOutOfRange { stag, first, last })
    }

    fn install_at(&self, stag: Stag, entry: Entry) -> Result<(), Misuse> {
        let owned = self.claim_at(stag, Purpose::Region(entry.pd))?;
        owned.publish(stag.key(), entry);
        Ok(())
    }

    /// Takes the index of an STag of another process, and owns its slot.
    pub(super) fn claim_at(&self, stag: Stag, purpose: Purpose) -> Result<Owned<'_>, Misuse> {
        let index = stag.index();
        if !self.indexes.lock().take_at(index, purpose) {
            return Err(Misuse::IndexInUse(stag));
        }
        let slot = self.slot_or_make(index);
        slot.clear_touch();
        // The index was just taken, so its slot is free or about to be released by its last owner.
        slot.claim().map_err(|_| {
            self.indexes.lock().free(index);
            Misuse::IndexInUse(stag)
        })
    }
}

#[cfg(test)]
mod tests;
