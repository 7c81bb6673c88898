//! The translation and protection table of one function (M2): every region and window, found by STag in constant time.
//! An access is granted only if every check holds; after a call that revokes an entry no access to it is running and none can begin.

mod commands;
mod index;
mod pending;
mod region_export;
mod stag_rng;
mod touch;
mod window_export;
mod windows;
mod wr_register;

pub use commands::Command;
pub use index::PageQuota;
pub use pending::{Draft, Layout, Reserved, Settled};
pub use region_export::RegionExport;
pub use touch::{Spend, TouchAhead, Verdict};
pub use window_export::{WindowBinding, WindowExport};
pub use wr_register::{MAX_PAGES, Ticket};

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use verbena_sync::atomic::AtomicU32;
use verbena_sync::locks::OnceLock;

use verbena_sync::locks::Mutex;
use verbena_wire::{Stag, To};

use crate::access::Access;
use crate::att::Att;
use crate::check::{self, MemAccess};
use crate::entry::{Entry, Kind, Pd, Policy};
use crate::grant::{Gather, GrantedRange, Placement};
use crate::probe;
use crate::refusal::{Misuse, Refusal};
use crate::slot::{Grant, Lookup, Owned, Slot, Unavailable};
use index::{Indexes, Purpose, SEGMENT};
use pending::{Waiting, check as check_region};
use wr_register::Prepared;

/// Slots are allocated in segments when an index of the segment is first used.
type Segment = Box<[Slot]>;

/// The table.
#[derive(Debug)]
pub struct Tpt {
    range: Range<u32>,
    /// The policy of domains without one of their own (M7).
    policy: Policy,
    /// The policies of domains that differ from it.
    domain_policies: Mutex<HashMap<Pd, Policy>>,
    segments: Box<[OnceLock<Segment>]>,
    indexes: Mutex<Indexes>,
    waiting: Waiting,
    /// Registrations that work requests will execute (M4).
    prepared: Mutex<Prepared>,
    /// The next number of a message that ends in a one-touch entry (M9).
    touches: AtomicU32,
}

/// A region to register.
#[derive(Debug)]
pub struct Region {
    /// Where its bytes are.
    pub att: Att,
    /// The address of its first byte in requests; 0 makes it zero-based.
    pub start: To,
    /// Its domain.
    pub pd: Pd,
    /// Its rights.
    pub access: Access,
    /// It is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
}

impl Tpt {
    /// An empty table whose STag indexes lie in `range`; `seed` determines their order and keys.
    ///
    /// Index 0 is never used, whatever the range: STag 0 must not name an entry.
    pub fn new(range: Range<u32>, policy: Policy, seed: u64) -> Tpt {
        let size = range.end.saturating_sub(range.start);
        let segments = (size as usize).div_ceil(SEGMENT);
        Tpt {
            policy,
            domain_policies: Mutex::default(),
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            indexes: Mutex::new(Indexes::new(range.clone(), seed)),
            waiting: Waiting::default(),
            prepared: Mutex::new(Prepared::default()),
            touches: AtomicU32::new(0),
            range,
        }
    }

    /// The remote-access policy of domains without one of their own (M7).
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The remote-access policy of a domain (M7).
    pub fn policy_of(&self, pd: Pd) -> Policy {
        let own = self.domain_policies.lock().get(&pd).copied();
        own.unwrap_or(self.policy)
    }

    /// Sets the remote-access policy of a domain that has no entries yet (M7).
    pub fn set_policy_of(&self, pd: Pd, policy: Policy) {
        let mut policies = self.domain_policies.lock();
        if policy == self.policy {
            policies.remove(&pd);
        } else {
            policies.insert(pd, policy);
        }
    }

    /// Entries in use.
    pub fn len(&self) -> u32 {
        self.indexes.lock().len()
    }

    /// Entries in use of one domain, unbound windows included.
    pub fn len_of(&self, pd: Pd) -> u32 {
        self.indexes.lock().len_of(pd)
    }

    /// The STag indexes it may give out.
    pub fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// No entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Registers a region (M4, the direct way).
    ///
    /// # Safety
    /// The memory behind `region.att` stays mapped, with the protection it has now, until [`deregister`](Tpt::deregister)
    /// returns, for this region and for all that [`register_shared`](Tpt::register_shared) made of it; and the program accepts that
    /// the adapter and, within the rights, peers read and write it at any time.
    pub unsafe fn register(&self, region: Region) -> Result<Stag, Misuse> {
        self.install(self.checked_entry(region)?)
    }

    /// The same for memory of the adapter, without the check that it is mapped.
    ///
    /// # Safety
    /// As for [`register`](Tpt::register), and the memory is mapped now, readable and writable.
    pub unsafe fn register_unprobed(&self, region: Region) -> Result<Stag, Misuse> {
        check_region(region.access, region.start, region.att.len())?;
        self.install(self.entry(region))
    }

    /// Registers the memory of a region once more, with its own domain, address and rights (M5).
    pub fn register_shared(
        &self,
        of: Stag,
        start: To,
        pd: Pd,
        access: Access,
    ) -> Result<Stag, Misuse> {
        if self.is_pending(of) {
            return Err(Misuse::Pending(of));
        }
        let original = self.find_entry(of).ok_or(Misuse::Stag(of))?;
        if original.kind != Kind::Region {
            return Err(Misuse::Stag(of));
        }
        check_region(access, start, original.len)?;
        // The first registration may have been for read rights only.
        if access.needs_writable() {
            probe::check_all_mapped(&original.att, true)?;
        }
        self.install(Entry {
            start,
            pd,
            policy: self.policy_of(pd),
            access: access.into(),
            one_touch: false,
            invalidatable: false,
            ..original
        })
    }

    /// Replaces the rights of a region that no window is bound to; its STag stays. Accesses that begin after this returns
    /// are checked against the new rights; those that began before may still run.
    pub fn change_access(&self, stag: Stag, access: Access) -> Result<(), Misuse> {
        if self.is_pending(stag) {
            return Err(Misuse::Pending(stag));
        }
        let grant = self.acquire(stag).ok_or(Misuse::Stag(stag))?;
        let users = grant.slot().users();
        if users > 0 {
            return Err(Misuse::Busy { stag, users });
        }
        let change = |entry: &Entry| {
            if entry.kind != Kind::Region {
                return Err(Misuse::Stag(stag));
            }
            check_region(access, entry.start, entry.len)?;
            if access.needs_writable() {
                probe::check_all_mapped(&entry.att, true)?;
            }
            entry.access.set(access);
            Ok(())
        };
        grant.entry(change).unwrap_or(Err(Misuse::Stag(stag)))
    }

    /// Removes a region or window: new accesses fail at once, and when this returns none is running.
    ///
    /// A region with windows bound to it stays. A pending entry is removed: [`Reserved::complete`] then fails, and the entry
    /// counts as in use until then. The caller must not hold a grant on the entry.
    pub fn deregister(&self, stag: Stag) -> Result<(), Misuse> {
        let misuse = Misuse::Stag(stag);
        let index = stag.index();
        let slot = self.slot(index).ok_or(misuse)?;
        let users = slot.users();
        if users > 0 {
            return Err(Misuse::Busy { stag, users });
        }
        let taken_for = self.indexes.lock().purpose(index);
        match taken_for {
            Some(Purpose::Window(..)) => return self.free_window(stag),
            Some(Purpose::WrRegion { .. }) => return self.free_wr_stag(stag, false),
            Some(Purpose::Region(_)) | None => {}
        }
        let owned = match slot.revoke(Some(stag.key())) {
            Ok(owned) => owned,
            Err(Unavailable::Pending) => return self.cancel(slot, stag),
            Err(_) => return self.free_spent(slot, stag),
        };
        if owned.read_entry(Entry::is_window).unwrap_or(true) {
            // Freed meanwhile, and the index is used for a window now.
            owned.restore();
            return Err(misuse);
        }
        // A bind that was running at the first check has finished by now.
        let users = slot.users();
        if users > 0 {
            owned.restore();
            return Err(Misuse::Busy { stag, users });
        }
        owned.release();
        if self.indexes.lock().free(index) {
            Ok(())
        } else {
            Err(misuse)
        }
    }

    /// Removes a pending entry; its index is freed when its [`Reserved`] ends.
    fn cancel(&self, slot: &Slot, stag: Stag) -> Result<(), Misuse> {
        if slot.key() != stag.key() {
            return Err(Misuse::Stag(stag));
        }
        match slot.settle(stag.key()) {
            Ok(owned) => {
                // No longer a window's index, so that it cannot be freed once more.
                self.indexes.lock().clear_window(stag.index());
                owned.release();
                Ok(())
            }
            // It was completed or removed concurrently, and is not pending any more.
            Err(_) => self.deregister(stag),
        }
    }

    /// Grants a write by a local work request into a region (M6).
    pub fn place_local(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        self.grant(reach, check::local).map(Placement)
    }

    /// Grants a read by a local work request from a region (M6).
    pub fn gather_local(&self, reach: &MemAccess) -> Result<Gather<'_>, Refusal> {
        self.grant(reach, check::local).map(Gather)
    }

    /// Grants a write or an atomic by a peer (M7).
    pub fn place_remote(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        self.grant(reach, check::remote).map(Placement)
    }

    /// Grants all of an entry to a peer (M7); the range of `reach` is not used.
    pub fn place_remote_entry(&self, reach: &MemAccess) -> Result<Placement<'_>, Refusal> {
        // An entry that is not known is refused with the reason for that.
        let known = self.find_known_entry(reach.stag);
        let (at, len) = known.map_or((0, 0), |entry| (entry.start.get(), entry.len));
        self.place_remote(&MemAccess { at, len, ..*reach })
    }

    /// Grants a read by a peer (M7).
    pub fn gather_remote(&self, reach: &MemAccess) -> Result<Gather<'_>, Refusal> {
        self.grant(reach, check::remote).map(Gather)
    }

    /// A copy of the entry, if it is valid.
    pub fn find_entry(&self, stag: Stag) -> Option<Entry> {
        self.acquire(stag)?.entry(Entry::clone)
    }

    /// Faults the pages of an access by a local work request in, without the access (M6); if `pages` is false, only the checks are made.
    ///
    /// No grant is held meanwhile: the program may deregister and unmap the memory, and then this fails or has no effect.
    pub fn prefetch(&self, reach: &MemAccess, pages: bool) -> Result<(), Refusal> {
        let stag = reach.stag;
        let entry = self.find_entry(stag).ok_or(Refusal::Stag { stag })?;
        check::local(&entry, reach)?;
        if !pages {
            return Ok(());
        }
        let write = reach.needs.needs_writable();
        let (mut at, end) = (0, reach.len);
        while at < end {
            let span = entry
                .att
                .run_for(entry.offset_of(reach.at) + at, end - at, write);
            if span.is_empty() {
                break;
            }
            probe::populate(&span, write).map_err(|_| Refusal::Unmapped)?;
            at += span.len() as u64;
        }
        Ok(())
    }

    fn grant(
        &self,
        reach: &MemAccess,
        check: impl FnOnce(&Entry, &MemAccess) -> Result<(), Refusal>,
    ) -> Result<GrantedRange<'_>, Refusal> {
        let stag = reach.stag;
        let invalid = Refusal::Stag { stag };
        let slot = self.slot(stag.index()).ok_or(invalid)?;
        let (grant, pending) = match slot.lookup(stag.key()) {
            Lookup::Valid(grant) => (grant, false),
            Lookup::Pending(grant) => (grant, true),
            Lookup::Settling => return Err(Refusal::Pending { stag }),
            Lookup::NotFound if slot.was_spent(stag.key()) => {
                return Err(Refusal::Touched { stag });
            }
            Lookup::NotFound => return Err(invalid),
        };
        let judge = |entry: &Entry| {
            // A pending window is not bound to anything.
            if pending && entry.kind != Kind::Region {
                return Err(invalid);
            }
            check(entry, reach).map(|()| (entry.offset_of(reach.at), entry.one_touch))
        };
        let (offset, one_touch) = grant.entry(judge).unwrap_or(Err(invalid))?;
        // V5: the fields that are known allow the access, but the memory is not verified yet.
        if pending {
            return Err(Refusal::Pending { stag });
        }
        let len = reach.len;
        Ok(GrantedRange {
            grant,
            offset,
            len,
            one_touch,
        })
    }

    /// A copy of the entry, if it is valid or pending.
    fn find_known_entry(&self, stag: Stag) -> Option<Entry> {
        self.slot(stag.index())?
            .read_entry(stag.key(), Entry::clone)
    }

    fn acquire(&self, stag: Stag) -> Option<Grant<'_>> {
        self.slot(stag.index())?.acquire(stag.key())
    }

    fn install(&self, entry: Entry) -> Result<Stag, Misuse> {
        let (stag, owned) = self.allocate(Purpose::Region(entry.pd))?;
        owned.publish(stag.key(), entry);
        Ok(stag)
    }

    /// A new STag and its slot, which the caller owns until `publish` or `free_with_key`.
    fn allocate(&self, purpose: Purpose) -> Result<(Stag, Owned<'_>), Misuse> {
        let full = Misuse::Full(self.capacity());
        let (index, step) = self.indexes.lock().take(purpose).ok_or(full)?;
        let slot = self.slot_or_make(index);
        slot.clear_touch();
        // The index was just taken, so its slot is free or about to be released by its last owner, which changes the key.
        let Ok(owned) = slot.claim() else {
            self.indexes.lock().free(index);
            return Err(full);
        };
        let stag = Stag::from_parts(index, slot.key().wrapping_add(step)).ok_or(full)?;
        Ok((stag, owned))
    }

    fn capacity(&self) -> u32 {
        self.range.end.saturating_sub(self.range.start.max(1))
    }

    /// The entry of a region, after checks of its range and rights and that its memory is mapped.
    fn checked_entry(&self, region: Region) -> Result<Entry, Misuse> {
        check_region(region.access, region.start, region.att.len())?;
        probe::check_all_mapped(&region.att, region.access.needs_writable())?;
        Ok(self.entry(region))
    }

    fn entry(&self, region: Region) -> Entry {
        let Region {
            att,
            start,
            pd,
            access,
            one_touch,
        } = region;
        Entry {
            kind: Kind::Region,
            start,
            len: att.len(),
            pd,
            policy: self.policy_of(pd),
            access: access.into(),
            one_touch,
            invalidatable: false,
            att: Arc::new(att),
            att_offset: 0,
            parent: None,
        }
    }

    /// The slot of an index; `None` if its segment was never used.
    fn slot(&self, index: u32) -> Option<&Slot> {
        let at = index.checked_sub(self.range.start)? as usize;
        let segment = self.segments.get(at / SEGMENT)?.get()?;
        segment.get(at % SEGMENT)
    }

    fn slot_or_make(&self, index: u32) -> &Slot {
        let at = (index - self.range.start) as usize;
        let segment = self.segments[at / SEGMENT]
            // The key is drawn when an index is taken.
            .get_or_init(|| (0..SEGMENT).map(|_| Slot::new(0)).collect());
        &segment[at % SEGMENT]
    }

    /// Decrements the window count of the removed entry's region.
    fn unlink(&self, entry: Option<Entry>) {
        let parent = entry.and_then(|e| e.parent);
        if let Some(slot) = parent.and_then(|index| self.slot(index)) {
            slot.remove_user();
        }
    }
}

#[cfg(test)]
mod tests;
