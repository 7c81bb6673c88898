//! One slot of the table and the grant protocol on it: one atomic word says whether the slot is valid, its key, and how many use it.
//! It promises that an entry is never changed while anybody uses it, that revoking makes new uses fail at once,
//! and that waiting for running uses ends when they do. It refuses to know what an entry means.
//!
//! The word: bits 0–31 count grants, bits 32–39 hold the key, bits 40–42 the state. A grant costs one addition and one
//! subtraction; no lock. A pending entry (V5) can be looked at under a grant like a valid one, but whoever gets it is told
//! that it must not be used yet. The protocol is modelled with loom in `slot/tests.rs`.

mod touch;

pub(crate) use touch::Touch;

use crate::entry::Entry;
use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, pause};

const GRANT: u64 = 1;
const GRANTS: u64 = 0xffff_ffff;
const KEY_SHIFT: u32 = 32;
const KEY: u64 = 0xff << KEY_SHIFT;
const STATE: u64 = 7 << 40;
/// Nothing to use here.
const FREE: u64 = 0;
/// Somebody is changing the slot and is the only one who may.
const BUSY: u64 = 1 << 40;
/// The entry may be used by whoever knows the key.
const VALID: u64 = 2 << 40;
/// The entry is promised to whoever knows the key, and may not be used yet (V5).
const PENDING: u64 = 3 << 40;
/// As busy, but what was promised is still to be had or refused a moment later: nobody is told that it is not there.
const SETTLING: u64 = 4 << 40;

/// One slot. The entry is written only in state `BUSY` or `SETTLING` with no grants, by the one who made it so.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(64)))]
pub(crate) struct Slot {
    word: AtomicU64,
    entry: UnsafeCell<Option<Entry>>,
    /// Windows bound to this region.
    users: AtomicU32,
    /// Whether the entry was touched since it was put here (M9): the number of a [`Touch`] in bits 0–31, its kind above.
    /// It stays when the entry is gone, so that whoever comes late is told why.
    touch: AtomicU64,
}

// SAFETY: `entry` is read under a grant or ownership and written under ownership only; the word's acquire and release
// operations order the two.
unsafe impl Sync for Slot {}
// SAFETY: nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// What stood in the way of making a slot busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// It is valid, but should not be.
    Valid,
    /// It is not valid, or has another key.
    Invalid,
    /// It is pending.
    Pending,
}

/// What a slot answers to one who wants to use it.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    /// Its entry, to be used.
    Valid(Grant<'a>),
    /// Its entry, to be looked at: it is not there yet.
    Pending(Grant<'a>),
    /// It was pending a moment ago, and in a moment it is valid or gone.
    Settling,
    /// Nothing under this key.
    Nothing,
}

impl Slot {
    /// A free slot whose next key will be `key`.
    pub(crate) fn new(key: u8) -> Slot {
        Slot {
            word: AtomicU64::new(FREE | (u64::from(key) << KEY_SHIFT)),
            entry: UnsafeCell::new(None),
            users: AtomicU32::new(0),
            touch: AtomicU64::new(0),
        }
    }

    /// The current key.
    pub(crate) fn key(&self) -> u8 {
        key_of(self.word.load(Ordering::Relaxed))
    }

    /// Uses the entry, if it is valid under this key.
    pub(crate) fn acquire(&self, key: u8) -> Option<Grant<'_>> {
        match self.ask(key) {
            Answer::Valid(grant) => Some(grant),
            Answer::Pending(_) | Answer::Settling | Answer::Nothing => None,
        }
    }

    /// Uses the entry if it is valid under this key, or looks at it if it is pending.
    pub(crate) fn ask(&self, key: u8) -> Answer<'_> {
        // Counting first makes a revoker wait for us from here on; if the state is wrong we were never really here.
        let word = self.word.fetch_add(GRANT, Ordering::Acquire);
        let grant = Grant { slot: self };
        match word & STATE {
            VALID if key_of(word) == key => Answer::Valid(grant),
            PENDING if key_of(word) == key => Answer::Pending(grant),
            SETTLING if key_of(word) == key => Answer::Settling,
            _ => Answer::Nothing,
        }
    }

    /// Looks at the entry, valid or pending, under this key.
    pub(crate) fn look<R>(&self, key: u8, look: impl FnOnce(&Entry) -> R) -> Option<R> {
        let mut turn = 0;
        loop {
            match self.ask(key) {
                Answer::Valid(grant) | Answer::Pending(grant) => return grant.entry(look),
                Answer::Nothing => return None,
                Answer::Settling => {
                    pause(turn);
                    turn += 1;
                }
            }
        }
    }

    /// The entry is pending under this key, or was a moment ago and is being settled.
    pub(crate) fn is_pending(&self, key: u8) -> bool {
        let word = self.word.load(Ordering::Acquire);
        matches!(word & STATE, PENDING | SETTLING) && key_of(word) == key
    }

    /// Makes a free slot ours, to publish an entry in it.
    pub(crate) fn claim(&self) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            FREE => Some(Ok(())),
            VALID => Some(Err(Unavailable::Valid)),
            PENDING => Some(Err(Unavailable::Pending)),
            _ => None,
        })
    }

    /// Makes a pending slot ours: whoever was promised the entry gets it or is told that it will not come.
    pub(crate) fn settle(&self, key: u8) -> Result<Owned<'_>, Unavailable> {
        self.own(SETTLING, |word| match word & STATE {
            PENDING if key_of(word) == key => Some(Ok(())),
            PENDING | VALID | FREE => Some(Err(Unavailable::Invalid)),
            _ => None,
        })
    }

    /// Makes a valid slot ours: new grants fail from here on. `key` of `None` takes it whatever its key.
    pub(crate) fn revoke(&self, key: Option<u8>) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            VALID if key.is_none_or(|key| key_of(word) == key) => Some(Ok(())),
            PENDING if key.is_none_or(|key| key_of(word) == key) => Some(Err(Unavailable::Pending)),
            VALID | FREE | PENDING => Some(Err(Unavailable::Invalid)),
            _ => None,
        })
    }

    /// Makes the slot ours, whether it is valid or free; waits while somebody else has it. A pending one is not taken.
    pub(crate) fn take(&self) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            VALID | FREE => Some(Ok(())),
            PENDING => Some(Err(Unavailable::Pending)),
            _ => None,
        })
    }

    /// Moves to `BUSY` or `SETTLING` when `judge` says so, waits while it says nothing, gives up when it says no.
    fn own(
        &self,
        to: u64,
        judge: impl Fn(u64) -> Option<Result<(), Unavailable>>,
    ) -> Result<Owned<'_>, Unavailable> {
        let mut turn = 0;
        loop {
            let word = self.word.load(Ordering::Acquire);
            match judge(word) {
                Some(Err(no)) => return Err(no),
                None => {
                    pause(turn);
                    turn += 1;
                }
                Some(Ok(())) => {
                    let busy = (word & !STATE) | to;
                    let swapped =
                        self.word
                            .compare_exchange(word, busy, Ordering::AcqRel, Ordering::Relaxed);
                    if swapped.is_ok() {
                        let owned = Owned { slot: self };
                        owned.quiesce();
                        return Ok(owned);
                    }
                }
            }
        }
    }

    /// Leaves `BUSY` or `SETTLING` for a state and key, keeping the count of those who are looking in meanwhile.
    fn leave(&self, state: u64, key: u8) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(matches!(word & STATE, BUSY | SETTLING), "not ours");
            let next = (word & GRANTS) | (u64::from(key) << KEY_SHIFT) | state;
            let swapped =
                self.word
                    .compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed);
            match swapped {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Windows bound to this region.
    pub(crate) fn users(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

fn key_of(word: u64) -> u8 {
    ((word & KEY) >> KEY_SHIFT) as u8
}

/// The right to use a slot's entry for a moment.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    slot: &'a Slot,
}

impl<'a> Grant<'a> {
    /// Looks at the entry.
    pub(crate) fn entry<R>(&self, f: impl FnOnce(&Entry) -> R) -> Option<R> {
        self.slot.entry.with(|entry| {
            // SAFETY: `acquire` counted us while the slot was valid, so nobody owns it until we are dropped.
            unsafe { (*entry).as_ref() }.map(f)
        })
    }

    pub(crate) fn slot(&self) -> &'a Slot {
        self.slot
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        // Release: whatever we did under the grant happens before a revoker goes on.
        self.slot.word.fetch_sub(GRANT, Ordering::Release);
    }
}

/// A busy slot without grants: only its holder may change it. It must end in a state; by itself it becomes free.
#[derive(Debug)]
pub(crate) struct Owned<'a> {
    slot: &'a Slot,
}

impl Owned<'_> {
    /// Waits until no grant taken before is left. Latecomers come and go, but see a busy slot and touch nothing.
    fn quiesce(&self) {
        let mut turn = 0;
        while self.slot.word.load(Ordering::Acquire) & GRANTS != 0 {
            pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// A copy of the entry that stands here.
    pub(crate) fn entry(&self) -> Option<Entry> {
        self.look(Entry::clone)
    }

    /// Looks at the entry that stands here.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&Entry) -> R) -> Option<R> {
        self.slot.entry.with(|entry| {
            // SAFETY: we own the slot, nobody writes.
            unsafe { (*entry).as_ref() }.map(f)
        })
    }

    /// Publishes an entry under a key: from here on it may be used.
    pub(crate) fn publish(self, key: u8, entry: Entry) {
        self.put(entry);
        self.finish(VALID, key);
    }

    /// Promises an entry under a key: what is known of it can be looked at, and it may not be used yet (V5).
    pub(crate) fn promise(self, key: u8, entry: Entry) {
        self.put(entry);
        self.finish(PENDING, key);
    }

    /// Empties the slot and keeps its key: a window that is there now and bound to nothing.
    pub(crate) fn vacate(self) {
        let key = self.slot.key();
        self.clear();
        self.finish(FREE, key);
    }

    /// Leaves the slot empty, for an entry that will come under this key.
    pub(crate) fn leave_to(self, key: u8) {
        self.clear();
        self.finish(FREE, key);
    }

    fn put(&self, entry: Entry) {
        self.slot.forget_touch();
        self.slot.entry.with_mut(|slot| {
            // SAFETY: we own the slot and no grant was left when it became ours; those that came since see a busy
            // slot and do not look at the entry.
            unsafe { *slot = Some(entry) }
        });
    }

    fn clear(&self) {
        self.slot.entry.with_mut(|slot| {
            // SAFETY: as in `put`.
            unsafe { *slot = None }
        });
    }

    /// Leaves the slot as it was: an entry is valid again, under the same key.
    pub(crate) fn restore(self) {
        let state = self.look(|_| VALID).unwrap_or(FREE);
        let key = self.slot.key();
        self.finish(state, key);
    }

    /// Empties the slot; its next key will be another one.
    pub(crate) fn release(self) {
        drop(self);
    }

    fn finish(self, state: u64, key: u8) {
        self.slot.leave(state, key);
        core::mem::forget(self);
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.clear();
        // M2: reusing an index changes the instance.
        let key = self.slot.key().wrapping_add(1);
        self.slot.leave(FREE, key);
    }
}

#[cfg(test)]
mod tests;
