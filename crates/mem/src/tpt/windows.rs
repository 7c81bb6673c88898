//! Windows in the table: allocate, bind, invalidate (M8, M11).
//! A bind takes effect for every access that follows it; an invalidation for every access that follows its return.
//! The rules that a bind must satisfy are in [`crate::window`].

use verbena_wire::Stag;

use super::index::Purpose;
use super::{Misuse, Refusal, Tpt};
use crate::entry::{Entry, Kind, Pd, Scope};
use crate::slot::{Slot, Unavailable};
use crate::window::{Bind, WindowType, entry_for};

impl Tpt {
    /// A window that is not bound yet.
    pub fn allocate_window(&self, ty: WindowType, pd: Pd) -> Result<Stag, Misuse> {
        let (stag, owned) = self.allocate(Purpose::Window(ty, pd))?;
        owned.free_with_key(stag.key());
        Ok(stag)
    }

    /// Binds a window to a part of a region; returns the STag under which peers may use it.
    ///
    /// A type 1 window may be bound already and gets a new key; length 0 unbinds it. A type 2 window must be
    /// unbound and gets the key that the caller chose.
    pub fn bind(&self, bind: &Bind) -> Result<Stag, Misuse> {
        let index = bind.window.index();
        let misuse = Misuse::Stag(bind.window);
        let window = self.indexes.lock().window(index);
        let (ty, pd) = window.ok_or(misuse)?;
        if pd != bind.pd {
            return Err(Misuse::Bind(
                "the window belongs to another protection domain",
            ));
        }
        let slot = self.slot(index).ok_or(misuse)?;
        // M9: the key of a window that a touch removed has changed, and the caller has the old one.
        let spent = slot.spent_key() == Some(bind.window.key());
        if ty == WindowType::One && bind.window.key() != slot.key() && !spent {
            return Err(misuse);
        }
        if slot.is_pending(slot.key()) {
            return Err(Misuse::Pending(bind.window));
        }
        if bind.len == 0 {
            return self.unbind(bind.window, ty);
        }
        if self.is_pending(bind.region) {
            return Err(Misuse::Pending(bind.region));
        }
        let region = self.acquire(bind.region);
        let region = region.ok_or(Misuse::Bind("the region is not valid"))?;
        let entry = region
            .entry(|region| entry_for(bind, ty, region))
            .unwrap_or(Err("the region is not valid"))
            .map_err(Misuse::Bind)?;
        let owned = match slot.claim() {
            Ok(owned) => owned,
            Err(_) if ty != WindowType::One => {
                return Err(Misuse::Bind(
                    "a type 2 window must be unbound before it is bound",
                ));
            }
            // Bound, or unbound again by now.
            Err(_) => slot.take().map_err(|_| misuse)?,
        };
        // The window may have been freed before its slot was owned, and its index taken for another entry.
        let ours = self.indexes.lock().window(index) == Some((ty, pd));
        let known = owned.matches_key(bind.window.key());
        if !ours || (ty == WindowType::One && !known) {
            owned.restore();
            return Err(misuse);
        }
        self.unlink(owned.entry());
        let key = match ty {
            WindowType::One => bind.window.key().wrapping_add(1),
            WindowType::TwoA | WindowType::TwoB => bind.key,
        };
        // Counted under the grant on the region, so that it cannot be deregistered in between.
        region.slot().add_user();
        owned.publish(key, entry);
        Stag::from_parts(index, key).ok_or(misuse)
    }

    fn unbind(&self, window: Stag, ty: WindowType) -> Result<Stag, Misuse> {
        if ty != WindowType::One {
            return Err(Misuse::Bind("a type 2 window is unbound by invalidation"));
        }
        let (index, misuse) = (window.index(), Misuse::Stag(window));
        let slot = self.slot(index).ok_or(misuse)?;
        if let Ok(owned) = slot.revoke(Some(window.key())) {
            if !owned.entry().is_some_and(|entry| entry.is_window()) {
                // Freed meanwhile, and the index is used for a region now.
                owned.restore();
                return Err(misuse);
            }
            self.unlink(owned.entry());
            owned.release();
        }
        Stag::from_parts(index, slot.key()).ok_or(misuse)
    }

    /// Frees a window, bound or not. Any key is accepted: each bind changes it, and the caller may not have the last one.
    pub(super) fn free_window(&self, window: Stag) -> Result<(), Misuse> {
        let (index, misuse) = (window.index(), Misuse::Stag(window));
        let slot = self.slot(index).ok_or(misuse)?;
        let Ok(owned) = slot.take() else {
            return self.cancel(slot, window);
        };
        // The index is freed while the slot is owned: a concurrent bind either came before, and is undone here, or finds that
        // its window is gone.
        let mut indexes = self.indexes.lock();
        if indexes.window(index).is_none() {
            drop(indexes);
            owned.restore();
            return Err(misuse);
        }
        self.unlink(owned.entry());
        indexes.free(index);
        drop(indexes);
        owned.release();
        Ok(())
    }

    /// Removes a region and unbinds all windows bound to it: when this returns, no access to its memory is running or can begin.
    /// For memory that is freed in any case.
    ///
    /// Without windows it costs what [`deregister`](Tpt::deregister) does, with some a pass over the whole table. The
    /// caller must not hold a grant on the region or its windows.
    pub fn deregister_with_windows(&self, region: Stag) -> Result<(), Misuse> {
        let misuse = Misuse::Stag(region);
        let index = region.index();
        if self.indexes.lock().window(index).is_some() {
            return Err(misuse);
        }
        if self.indexes.lock().wr_region(index).is_some() {
            return self.free_wr_stag(region, true);
        }
        let slot = self.slot(index).ok_or(misuse)?;
        // From here on no bind to the region begins, and those that had begun have ended.
        let owned = match slot.revoke(Some(region.key())) {
            Ok(owned) => owned,
            // No window can be bound to it yet.
            Err(Unavailable::Pending) => return self.cancel(slot, region),
            Err(_) if slot.spent_key() == Some(region.key()) => {
                self.unbind_all(slot, index);
                return self.free_spent(slot, region);
            }
            Err(_) => return Err(misuse),
        };
        if owned.entry().is_none_or(|entry| entry.is_window()) {
            // Freed meanwhile, and the index is used for a window now.
            owned.restore();
            return Err(misuse);
        }
        self.unbind_all(slot, index);
        owned.release();
        self.indexes.lock().free(index);
        Ok(())
    }

    /// Unbinds every window of a region to which no bind is running.
    pub(super) fn unbind_all(&self, region: &Slot, index: u32) {
        let mut turn = 0;
        while region.users() > 0 {
            // Repeated only if another thread is unbinding a window at the same time.
            self.unbind_from(index);
            verbena_sync::primitives::pause(turn);
            turn += 1;
        }
    }

    fn unbind_from(&self, region: u32) {
        let made = self.segments.iter().filter_map(|segment| segment.get());
        for slot in made.flatten() {
            let key = slot.key();
            let is_bound = |entry: &Entry| entry.parent == Some(region);
            let bound = slot.acquire(key).and_then(|grant| grant.entry(is_bound));
            if bound != Some(true) {
                continue;
            }
            if let Ok(owned) = slot.revoke(Some(key)) {
                let entry = owned.entry();
                if entry.as_ref().is_some_and(is_bound) {
                    self.unlink(entry);
                    owned.release();
                } else {
                    owned.restore();
                }
            }
        }
    }

    /// Invalidates an entry for a local work request: later accesses fail.
    pub fn invalidate_local(&self, stag: Stag, pd: Pd) -> Result<(), Refusal> {
        self.invalidate(stag, |entry| entry.pd == pd || is_queue_pair_scoped(entry))
    }

    /// Invalidates an entry because a peer's Send with Invalidate asked for it (M11, RFC 5042 §4.1).
    pub fn invalidate_remote(&self, stag: Stag, pd: Pd, qp: u32) -> Result<(), Refusal> {
        self.invalidate(stag, |entry| match entry.kind {
            Kind::Window(Scope::QueuePair(owner)) => owner == qp,
            Kind::Window(Scope::Both(owner)) => owner == qp && entry.pd == pd,
            _ => entry.pd == pd,
        })
    }

    fn invalidate(&self, stag: Stag, may: impl FnOnce(&Entry) -> bool) -> Result<(), Refusal> {
        let invalid = Refusal::Stag { stag };
        let slot = self.slot(stag.index()).ok_or(invalid)?;
        // A pending region fails as a valid one does: neither is invalidatable.
        let allowed = slot.read_entry(stag.key(), |entry| (entry.invalidatable, may(entry)));
        match allowed {
            None => return invalidate_missing(slot, stag),
            Some((false, _)) => return Err(Refusal::Kind { stag }),
            Some((true, false)) => return Err(Refusal::Scope { stag }),
            Some((true, true)) => {}
        }
        if slot.users() > 0 {
            return Err(Refusal::Kind { stag });
        }
        let Ok(owned) = slot.revoke(Some(stag.key())) else {
            return invalidate_missing(slot, stag);
        };
        self.unlink(owned.entry());
        owned.release();
        Ok(())
    }
}

/// The result of invalidating an entry that is not there. If a touch removed it before (M9), the invalidation is done, and
/// succeeds.
fn invalidate_missing(slot: &Slot, stag: Stag) -> Result<(), Refusal> {
    // Waits for the thread that removes it: afterwards no access to it is running.
    if let Ok(owned) = slot.revoke(Some(stag.key())) {
        // It is there again, bound a moment ago.
        owned.restore();
    }
    if slot.spent_key() == Some(stag.key()) {
        Ok(())
    } else {
        Err(Refusal::Stag { stag })
    }
}

fn is_queue_pair_scoped(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Window(Scope::QueuePair(_)))
}
