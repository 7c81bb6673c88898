//! Pending entries (V5): reserved at once, completed or failed later by the thread that processes registrations.
//! The STag of a [`Reserved`] entry is final, accesses to it fail with `Pending` until it is complete, and the queue pairs that wait for it
//! are returned when it ends.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use verbena_sync::atomic::{AtomicU32, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::{Stag, To};

use super::index::Purpose;
use super::{Region, Tpt};
use crate::access::Access;
use crate::att::{Att, Page, PageSize};
use crate::entry::{Entry, Kind, Pd, Scope};
use crate::probe;
use crate::refusal::Misuse;
use crate::slot::Unavailable;
use crate::window::WindowType;

/// Where the bytes of a pending region are; a page list is verified and becomes a translation when the region is completed.
#[derive(Debug)]
pub enum Layout {
    /// A translation that is built already.
    Built(Att),
    /// `len` bytes scattered over pages.
    Pages {
        /// The size of each.
        size: PageSize,
        /// The pages.
        pages: Box<[Page]>,
        /// Where the first byte lies in the first page.
        first_offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Layout {
    pub(super) fn len(&self) -> u64 {
        match self {
            Layout::Built(att) => att.len(),
            Layout::Pages { len, .. } => *len,
        }
    }

    pub(super) fn build(self) -> Result<Att, Misuse> {
        match self {
            Layout::Built(att) => Ok(att),
            Layout::Pages {
                size,
                pages,
                first_offset,
                len,
            } => Att::paged(size, &pages, first_offset, len),
        }
    }
}

/// A region to register later; the fields of [`Region`], with a layout that need not be built yet.
#[derive(Debug)]
pub struct Draft {
    /// Where its bytes are.
    pub layout: Layout,
    /// The address of its first byte in requests; 0 makes it zero-based.
    pub start: To,
    /// Its domain.
    pub pd: Pd,
    /// Its rights.
    pub access: Access,
    /// It is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
}

impl From<Region> for Draft {
    fn from(region: Region) -> Draft {
        Draft {
            layout: Layout::Built(region.att),
            start: region.start,
            pd: region.pd,
            access: region.access,
            one_touch: region.one_touch,
        }
    }
}

/// What a reserved entry becomes.
#[derive(Debug)]
enum PendingKind {
    Region(Layout),
    Shared { of: Stag },
    Window,
}

/// How a reserved entry ended.
#[derive(Debug)]
#[must_use = "queue pairs that wait for the entry wait for ever unless they are notified"]
pub struct Settled {
    /// The entry is valid, or was removed for this reason.
    pub outcome: Result<(), Misuse>,
    /// Queue pairs that wait for it, to be notified by the caller.
    pub waiters: Vec<u32>,
}

/// A pending entry, to be completed or failed; dropped, it fails, and no queue pair is notified.
#[derive(Debug)]
pub struct Reserved {
    tpt: Arc<Tpt>,
    stag: Stag,
    access: Access,
    kind: Option<PendingKind>,
}

/// Number of pending entries, and the queue pairs that wait for them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Entries that are pending.
    count: AtomicU32,
    /// Queue pairs by the index of the entry they wait for.
    waiters: Mutex<HashMap<u32, Vec<u32>>>,
}

impl Tpt {
    /// Reserves a region: its STag is known at once, and accesses that its domain, range and rights allow fail with `Pending`
    /// until [`Reserved::complete`] has verified the memory.
    ///
    /// # Safety
    /// As for [`register`](Tpt::register), from now on: memory that is mapped stays so until the entry has failed or
    /// [`deregister`](Tpt::deregister) has returned for it.
    pub unsafe fn reserve(self: &Arc<Self>, draft: Draft) -> Result<Reserved, Misuse> {
        let (access, len) = (draft.access, draft.layout.len());
        check(access, draft.start, len)?;
        let entry = Entry {
            kind: Kind::Region,
            start: draft.start,
            len,
            pd: draft.pd,
            policy: self.policy_of(draft.pd),
            access: access.into(),
            one_touch: draft.one_touch,
            invalidatable: false,
            att: empty_att(),
            att_offset: 0,
            parent: None,
        };
        let purpose = Purpose::Region(draft.pd);
        self.reserve_entry(purpose, entry, PendingKind::Region(draft.layout))
    }

    /// Reserves another registration of a region's memory (M5); the region may be pending itself but must be valid by the time
    /// this is completed.
    pub fn reserve_shared(
        self: &Arc<Self>,
        of: Stag,
        start: To,
        pd: Pd,
        access: Access,
    ) -> Result<Reserved, Misuse> {
        let original = self.find_known_entry(of).ok_or(Misuse::Stag(of))?;
        if original.kind != Kind::Region {
            return Err(Misuse::Stag(of));
        }
        check(access, start, original.len)?;
        let entry = Entry {
            start,
            pd,
            policy: self.policy_of(pd),
            access: access.into(),
            one_touch: false,
            invalidatable: false,
            att: empty_att(),
            att_offset: 0,
            ..original
        };
        self.reserve_entry(Purpose::Region(pd), entry, PendingKind::Shared { of })
    }

    /// Reserves a window; it can be bound when it is completed.
    pub fn reserve_window(self: &Arc<Self>, ty: WindowType, pd: Pd) -> Result<Reserved, Misuse> {
        let entry = Entry {
            kind: Kind::Window(Scope::Domain),
            start: To::new(0),
            len: 0,
            pd,
            policy: self.policy,
            access: Access::NONE.into(),
            one_touch: false,
            invalidatable: false,
            att: empty_att(),
            att_offset: 0,
            parent: None,
        };
        self.reserve_entry(Purpose::Window(ty, pd), entry, PendingKind::Window)
    }

    fn reserve_entry(
        self: &Arc<Self>,
        purpose: Purpose,
        entry: Entry,
        promise: PendingKind,
    ) -> Result<Reserved, Misuse> {
        let (stag, owned) = self.allocate(purpose)?;
        let access = entry.access.get();
        // Before the STag is known to any other thread: `has_pending` must not be false while it is pending.
        self.waiting.count.fetch_add(1, Ordering::Release);
        owned.publish_pending(stag.key(), entry);
        Ok(Reserved {
            tpt: self.clone(),
            stag,
            access,
            kind: Some(promise),
        })
    }

    /// Some entry is pending. If not, an STag that the caller knows need not be checked with [`is_pending`](Tpt::is_pending).
    pub fn has_pending(&self) -> bool {
        self.waiting.count.load(Ordering::Acquire) > 0
    }

    /// The entry is reserved under this STag, and its registration not complete.
    pub fn is_pending(&self, stag: Stag) -> bool {
        self.slot(stag.index())
            .is_some_and(|slot| slot.is_pending(stag.key()))
    }

    /// The entry is valid or pending under this STag.
    pub fn contains(&self, stag: Stag) -> bool {
        let index = stag.index();
        let window = self.indexes.lock().window(index).is_some();
        // The program may not have a window's last key.
        window || self.find_known_entry(stag).is_some()
    }

    /// Notes that this queue pair must be notified when the entry is settled; false if it is not pending.
    pub fn wait(&self, stag: Stag, qp: u32) -> bool {
        let mut waiters = self.waiting.waiters.lock();
        // Checked under the lock: `Reserved::end` settles the entry first and takes the list afterwards.
        if !self.is_pending(stag) {
            return false;
        }
        let line = waiters.entry(stag.index()).or_default();
        if !line.contains(&qp) {
            line.push(qp);
        }
        true
    }
}

impl Reserved {
    /// Its STag, which may be used in requests and given to peers.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Verifies the memory, which may take long, and makes the entry valid; or removes it and returns why.
    ///
    /// For an entry that was deregistered meanwhile the outcome is [`Misuse::Stag`].
    pub fn complete(mut self) -> Settled {
        let built = match self.kind.take() {
            // Deregistered: its memory may have been freed and must not be verified.
            Some(_) if !self.tpt.is_pending(self.stag) => Err(Misuse::Stag(self.stag)),
            Some(promise) => self.build(promise),
            None => Err(Misuse::Stag(self.stag)),
        };
        self.end(built)
    }

    /// Removes the entry; returns the queue pairs that wait for it.
    pub fn fail(mut self) -> Vec<u32> {
        self.kind = None;
        self.end(Err(Misuse::Stag(self.stag))).waiters
    }

    fn build(&self, promise: PendingKind) -> Result<Option<(Arc<Att>, u64)>, Misuse> {
        match promise {
            PendingKind::Window => Ok(None),
            PendingKind::Region(layout) => {
                let att = layout.build()?;
                probe::check_all_mapped(&att, self.access.needs_writable())?;
                Ok(Some((Arc::new(att), 0)))
            }
            PendingKind::Shared { of } => {
                if self.tpt.is_pending(of) {
                    return Err(Misuse::Pending(of));
                }
                let original = self.tpt.find_entry(of).ok_or(Misuse::Stag(of))?;
                if self.access.needs_writable() {
                    probe::check_all_mapped(&original.att, true)?;
                }
                Ok(Some((original.att, original.att_offset)))
            }
        }
    }

    /// The end of every reserved entry, and the only place that frees its index if it does not become valid.
    fn end(&self, built: Result<Option<(Arc<Att>, u64)>, Misuse>) -> Settled {
        let (tpt, stag) = (&self.tpt, self.stag);
        let owned = tpt
            .slot(stag.index())
            .ok_or(Unavailable::Invalid)
            .and_then(|slot| slot.settle(stag.key()));
        let outcome = match (owned, built) {
            (Ok(owned), Ok(Some((att, att_offset)))) => match owned.entry() {
                Some(entry) => {
                    let entry = Entry {
                        att,
                        att_offset,
                        ..entry
                    };
                    owned.publish(stag.key(), entry);
                    Ok(())
                }
                None => Err(Misuse::Stag(stag)),
            },
            (Ok(owned), Ok(None)) => {
                owned.vacate();
                Ok(())
            }
            (Ok(owned), Err(misuse)) => {
                owned.release();
                Err(misuse)
            }
            // It was deregistered meanwhile; the index is still taken, so that no other entry can be mistaken for it.
            (Err(_), _) => Err(Misuse::Stag(stag)),
        };
        if outcome.is_err() {
            tpt.indexes.lock().free(stag.index());
        }
        tpt.waiting.count.fetch_sub(1, Ordering::Release);
        let waiters = tpt.waiting.waiters.lock().remove(&stag.index());
        Settled {
            outcome,
            waiters: waiters.unwrap_or_default(),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.kind.take().is_some() {
            drop(self.end(Err(Misuse::Stag(self.stag))));
        }
    }
}

/// Checks that rights are allowed together and that the range does not wrap.
pub(super) fn check(access: Access, start: To, len: u64) -> Result<(), Misuse> {
    if !access.is_sane() {
        return Err(Misuse::Rights(access));
    }
    match start.checked_add(len) {
        Some(_) => Ok(()),
        None => {
            let start = start.get();
            Err(Misuse::Range { start, len })
        }
    }
}

/// The translation of an entry that has none.
pub(super) fn empty_att() -> Arc<Att> {
    static EMPTY: LazyLock<Arc<Att>> =
        LazyLock::new(|| Arc::new(Att::direct(core::ptr::null_mut(), 0)));
    EMPTY.clone()
}

#[cfg(test)]
mod tests;
