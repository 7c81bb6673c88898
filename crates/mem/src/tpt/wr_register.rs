//! Regions that are registered by a work request (M4), in three steps: the STag is allocated with its room in the table, a registration
//! is prepared, and the work request executes it. The STag cannot be used before that; the time of executing does not depend on
//! the length of the memory; a registration that fails to execute changes nothing and may be tried again.
//!
//! An STag's index and room stay taken until it is deregistered. Its key is incremented each time its region is removed, by an
//! invalidation of the program or a peer or by a touch (M9): the next registration has the STag [`Tpt::next_stag`].

use std::collections::HashMap;
use std::sync::Arc;

use verbena_wire::Stag;

use super::index::{PageQuota, Purpose};
use super::pending::{Draft, check};
use super::{Slot, Tpt};
use crate::entry::{Entry, Kind, Pd};
use crate::probe;
use crate::refusal::Misuse;

/// Pages that one STag may have room for: they cover 4 GiB, the longest message, in pages of 4 KiB.
pub const MAX_PAGES: u32 = 1 << 20;

/// Registrations of one table that may be prepared at once.
const MAX_PREPARED: usize = 1 << 16;

/// A prepared registration. It can be executed once; a failed attempt does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    stag: Stag,
    number: u64,
}

impl Ticket {
    /// The STag under which it is registered.
    pub fn stag(self) -> Stag {
        self.stag
    }
}

/// Registrations that are prepared.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    next: u64,
    entries: HashMap<u64, (Stag, Entry)>,
}

impl Prepared {
    /// V1: each table numbers its tickets by itself, so one of another function may have the same number, but not the same STag.
    fn has(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(&ticket.number);
        entry.is_some_and(|(stag, _)| *stag == ticket.stag)
    }
}

impl Tpt {
    /// An STag without an entry, with room for a registration of up to `pages` pages.
    pub fn allocate_stag(&self, pd: Pd, pages: u32) -> Result<Stag, Misuse> {
        if pages > MAX_PAGES {
            return Err(Misuse::Pages {
                pages,
                limit: MAX_PAGES,
            });
        }
        // M4: table space.
        let room = self.indexes.lock().reserve_pages(pages);
        room.map_err(|left| Misuse::PagesExhausted { pages, left })?;
        let (stag, owned) = self.allocate(Purpose::WrRegion { pd, pages })?;
        owned.free_with_key(stag.key());
        Ok(stag)
    }

    /// The STag of the registration after `stag` at the same index.
    pub fn next_stag(stag: Stag) -> Stag {
        Stag::new(stag.get() & !0xff | u32::from(stag.key().wrapping_add(1)))
    }

    /// The room that STags have taken, and the limit.
    pub fn page_quota(&self) -> PageQuota {
        self.indexes.lock().page_quota()
    }

    /// Sets the limit of the room of all STags together. What was taken stays.
    pub fn set_page_limit(&self, pages: u64) {
        self.indexes.lock().set_page_limit(pages);
    }

    /// Prepares the registration of a region under an STag of [`allocate_stag`](Tpt::allocate_stag): verifies the memory,
    /// which may take long, so that executing it does not. Whether it fits the STag is checked when it is executed.
    ///
    /// # Safety
    /// As for [`register`](Tpt::register), from now on: the memory stays mapped until the ticket is discarded or, once it
    /// was executed, until the program has invalidated the entry; at the latest until `deregister` has returned for the STag.
    pub unsafe fn prepare(&self, stag: Stag, draft: Draft) -> Result<Ticket, Misuse> {
        let writable = draft.access.needs_writable();
        let entry = self.wr_entry(draft)?;
        probe::check_all_mapped(&entry.att, writable)?;
        self.add_prepared(stag, entry)
    }

    /// The same for memory of the adapter, without the check that it is mapped: a registration per message then makes no system call.
    ///
    /// # Safety
    /// As for [`prepare`](Tpt::prepare), and the memory is mapped now, readable and writable.
    pub unsafe fn prepare_unprobed(&self, stag: Stag, draft: Draft) -> Result<Ticket, Misuse> {
        let entry = self.wr_entry(draft)?;
        self.add_prepared(stag, entry)
    }

    /// The entry of a draft, after the checks of its rights and its range.
    fn wr_entry(&self, draft: Draft) -> Result<Entry, Misuse> {
        let Draft {
            layout,
            start,
            pd,
            access,
            one_touch,
        } = draft;
        let len = layout.len();
        check(access, start, len)?;
        Ok(Entry {
            kind: Kind::Region,
            start,
            len,
            pd,
            policy: self.policy_of(pd),
            access: access.into(),
            one_touch,
            // M11: the program and its peer may invalidate it.
            invalidatable: true,
            att: Arc::new(layout.build()?),
            att_offset: 0,
            parent: None,
        })
    }

    fn add_prepared(&self, stag: Stag, entry: Entry) -> Result<Ticket, Misuse> {
        let mut prepared = self.prepared.lock();
        // Under the lock: `free_wr_stag` frees the STag before it removes what was prepared for it.
        if self.indexes.lock().wr_region(stag.index()).is_none() {
            return Err(Misuse::Stag(stag));
        }
        if prepared.entries.len() >= MAX_PREPARED {
            return Err(Misuse::Full(MAX_PREPARED as u32));
        }
        let number = prepared.next;
        prepared.next += 1;
        prepared.entries.insert(number, (stag, entry));
        Ok(Ticket { stag, number })
    }

    /// Discards a prepared registration; false if it was executed or discarded before.
    pub fn discard(&self, ticket: Ticket) -> bool {
        let mut prepared = self.prepared.lock();
        let there = prepared.has(ticket);
        if there {
            prepared.entries.remove(&ticket.number);
        }
        there
    }

    /// A registration is not prepared any more and its key has changed: it will not be executed, and no access under it is running.
    /// Only the last 255 registrations of an STag can be told apart.
    pub fn is_finished(&self, ticket: Ticket) -> bool {
        let prepared = self.prepared.lock().has(ticket);
        // The key changes after the last access under it has ended.
        let left = |slot: &Slot| slot.key() != ticket.stag.key();
        !prepared && self.slot(ticket.stag.index()).is_none_or(left)
    }

    /// Executes a prepared registration for a queue pair of this domain (M4): from here on its STag may be used.
    ///
    /// One that fails is still prepared, and may be executed again.
    pub fn execute(&self, ticket: Ticket, pd: Pd) -> Result<(), Misuse> {
        let (stag, index) = (ticket.stag, ticket.stag.index());
        let unknown = Misuse::Stag(stag);
        let slot = self.slot(index).ok_or(unknown)?;
        let entry = {
            let prepared = self.prepared.lock();
            let found = prepared.entries.get(&ticket.number);
            let (_, entry) = found.filter(|(s, _)| *s == stag).ok_or(unknown)?;
            entry.clone()
        };
        // M4: the STag's index.
        let (owner, room) = self.indexes.lock().wr_region(index).ok_or(unknown)?;
        for asker in [pd, entry.pd] {
            if asker != owner {
                let (owner, asker) = (owner.0, asker.0);
                return Err(Misuse::Domain {
                    stag,
                    owner,
                    requester: asker,
                });
            }
        }
        // M4: the tag instance.
        let instance = || Misuse::Instance {
            stag,
            next: self.next_key(slot),
        };
        let owned = slot.claim().map_err(|_| instance())?;
        if slot.key() != stag.key() {
            owned.restore();
            return Err(instance());
        }
        // M4: table space.
        let pages = entry.att.pages();
        if pages > room as usize {
            owned.restore();
            return Err(Misuse::Space { stag, pages, room });
        }
        // The STag may have been freed, and its index taken for another entry, since it was looked up; not while the slot is owned.
        let ours = self.indexes.lock().wr_region(index) == Some((owner, room));
        if !ours || !self.discard(ticket) {
            owned.restore();
            return Err(unknown);
        }
        owned.publish(stag.key(), entry);
        Ok(())
    }

    /// The key of the next registration at a slot.
    fn next_key(&self, slot: &Slot) -> u8 {
        let key = slot.key();
        match slot.acquire(key) {
            Some(_) => key.wrapping_add(1),
            None => key,
        }
    }

    /// Frees an STag and removes its region; any key is accepted, since the caller may not have the last one. Fails if windows are bound
    /// to the region, unless `windows`, which unbinds them.
    pub(super) fn free_wr_stag(&self, stag: Stag, windows: bool) -> Result<(), Misuse> {
        let (index, misuse) = (stag.index(), Misuse::Stag(stag));
        let slot = self.slot(index).ok_or(misuse)?;
        let owned = slot.take().map_err(|_| misuse)?;
        if self.indexes.lock().wr_region(index).is_none() {
            owned.restore();
            return Err(misuse);
        }
        if windows {
            self.unbind_all(slot, index);
        }
        let users = slot.users();
        if users > 0 {
            owned.restore();
            return Err(Misuse::Busy { stag, users });
        }
        self.indexes.lock().free(index);
        let mut prepared = self.prepared.lock();
        prepared.entries.retain(|_, (s, _)| s.index() != index);
        drop(prepared);
        owned.release();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
