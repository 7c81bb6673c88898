//! One slot of the table and the grant protocol on it. One atomic word has the state, the key and the number of grants.
//! Invariants: an entry is written only by the owner of the slot (states `BUSY` and `SETTLING`) after all grants were
//! released; from the moment a slot is owned new grants fail, and the owner waits for the existing ones.
//!
//! The word: bits 0–31 count grants, bits 32–39 hold the key, bits 40–42 the state. A grant costs one addition and one
//! subtraction; no lock. A pending entry (V5) can be read under a grant like a valid one, but [`Lookup::Pending`] tells
//! the caller that its memory must not be used yet. The protocol is modelled with loom in `slot/tests.rs`.

mod touch;

pub(crate) use touch::Touch;
use verbena_sync::primitives::{AtomicU32, AtomicU64, Ordering, UnsafeCell, pause};

use crate::entry::Entry;

const GRANT: u64 = 1;
const GRANTS: u64 = 0xffff_ffff;
const KEY_SHIFT: u32 = 32;
const KEY: u64 = 0xff << KEY_SHIFT;
const STATE: u64 = 7 << 40;
/// No entry to use.
const FREE: u64 = 0;
/// Owned: only the owner may change the slot.
const BUSY: u64 = 1 << 40;
/// The entry may be used under its key.
const VALID: u64 = 2 << 40;
/// The entry is reserved under its key, and may not be used yet (V5).
const PENDING: u64 = 3 << 40;
/// Owned like `BUSY`, on the way from `PENDING` to valid or gone: lookups get [`Lookup::Settling`] instead of `NotFound`.
const SETTLING: u64 = 4 << 40;

/// One slot. The entry is written only in state `BUSY` or `SETTLING` with no grants, by the owner.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(64)))]
pub(crate) struct Slot {
    word: AtomicU64,
    entry: UnsafeCell<Option<Entry>>,
    /// Windows bound to this region.
    users: AtomicU32,
    /// The [`Touch`] of the entry since it was put here (M9): its number in bits 0–31, its kind above, 0 for none. It is kept
    /// when the entry is removed, so that a later access gets the reason.
    touch: AtomicU64,
}

// SAFETY: `entry` is read under a grant or by the owner, and written by the owner only; the acquire and release
// operations on `word` order the two.
unsafe impl Sync for Slot {}
// SAFETY: nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// Why a slot could not be owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// It is valid, and a free one was asked for.
    Valid,
    /// It is not valid, or has another key.
    Invalid,
    /// It is pending.
    Pending,
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    /// The entry, to be used.
    Valid(Grant<'a>),
    /// The entry, to be read only: its registration is not complete.
    Pending(Grant<'a>),
    /// It was pending and is being made valid or removed: to be tried again.
    Settling,
    /// No entry under this key.
    NotFound,
}

impl Slot {
    /// A free slot with this key.
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

    /// A grant on the entry, if it is valid under this key.
    pub(crate) fn acquire(&self, key: u8) -> Option<Grant<'_>> {
        match self.lookup(key) {
            Lookup::Valid(grant) => Some(grant),
            Lookup::Pending(_) | Lookup::Settling | Lookup::NotFound => None,
        }
    }

    /// A grant on the entry if it is valid under this key, or to read it if it is pending.
    pub(crate) fn lookup(&self, key: u8) -> Lookup<'_> {
        // Counted first, so that an owner waits from here on; where the state does not match, dropping `grant` undoes it.
        let word = self.word.fetch_add(GRANT, Ordering::Acquire);
        let grant = Grant { slot: self };
        match word & STATE {
            VALID if key_of(word) == key => Lookup::Valid(grant),
            PENDING if key_of(word) == key => Lookup::Pending(grant),
            SETTLING if key_of(word) == key => Lookup::Settling,
            _ => Lookup::NotFound,
        }
    }

    /// Reads the entry, valid or pending, under this key.
    pub(crate) fn read_entry<R>(&self, key: u8, look: impl FnOnce(&Entry) -> R) -> Option<R> {
        let mut turn = 0;
        loop {
            match self.lookup(key) {
                Lookup::Valid(grant) | Lookup::Pending(grant) => return grant.entry(look),
                Lookup::NotFound => return None,
                Lookup::Settling => {
                    pause(turn);
                    turn += 1;
                }
            }
        }
    }

    /// The entry is pending under this key, or being settled.
    pub(crate) fn is_pending(&self, key: u8) -> bool {
        let word = self.word.load(Ordering::Acquire);
        matches!(word & STATE, PENDING | SETTLING) && key_of(word) == key
    }

    /// Owns a free slot, to publish an entry in it.
    pub(crate) fn claim(&self) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            FREE => Some(Ok(())),
            VALID => Some(Err(Unavailable::Valid)),
            PENDING => Some(Err(Unavailable::Pending)),
            _ => None,
        })
    }

    /// Owns a pending slot, to make its entry valid or remove it.
    pub(crate) fn settle(&self, key: u8) -> Result<Owned<'_>, Unavailable> {
        self.own(SETTLING, |word| match word & STATE {
            PENDING if key_of(word) == key => Some(Ok(())),
            PENDING | VALID | FREE => Some(Err(Unavailable::Invalid)),
            _ => None,
        })
    }

    /// Owns a valid slot: new grants fail from here on. With `None` any key matches.
    pub(crate) fn revoke(&self, key: Option<u8>) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            VALID if key.is_none_or(|key| key_of(word) == key) => Some(Ok(())),
            PENDING if key.is_none_or(|key| key_of(word) == key) => Some(Err(Unavailable::Pending)),
            VALID | FREE | PENDING => Some(Err(Unavailable::Invalid)),
            _ => None,
        })
    }

    /// Owns a slot that is valid or free; waits while it has another owner. A pending one is not taken.
    pub(crate) fn take(&self) -> Result<Owned<'_>, Unavailable> {
        self.own(BUSY, |word| match word & STATE {
            VALID | FREE => Some(Ok(())),
            PENDING => Some(Err(Unavailable::Pending)),
            _ => None,
        })
    }

    /// Moves to state `to` when `judge` returns `Ok`, waits while it returns `None`, fails with its error.
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

    /// Changes from `BUSY` or `SETTLING` to a state and key, keeping the number of grants: lookups may count themselves at any time.
    fn set_state(&self, state: u64, key: u8) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(matches!(word & STATE, BUSY | SETTLING), "not locked");
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

/// The right to read a slot's entry: [`Slot::own`] returns only after it is dropped.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    slot: &'a Slot,
}

impl<'a> Grant<'a> {
    /// Reads the entry.
    pub(crate) fn entry<R>(&self, f: impl FnOnce(&Entry) -> R) -> Option<R> {
        self.slot.entry.with(|entry| {
            // SAFETY: `lookup` counted this grant while the slot was valid or pending. An owner waits in `quiesce` until the count
            // is zero before it writes, so the entry is not written until this grant is dropped.
            unsafe { (*entry).as_ref() }.map(f)
        })
    }

    pub(crate) fn slot(&self) -> &'a Slot {
        self.slot
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        // Release: all reads under the grant happen before the owner's write.
        self.slot.word.fetch_sub(GRANT, Ordering::Release);
    }
}

/// A slot without grants, in state `BUSY` or `SETTLING`: only the owner may change it. Dropped, it becomes free with the next key.
#[derive(Debug)]
pub(crate) struct Owned<'a> {
    slot: &'a Slot,
}

impl Owned<'_> {
    /// Waits until no grant is left. Lookups that come later count themselves too, but find the slot owned and do not read the entry.
    fn quiesce(&self) {
        let mut turn = 0;
        while self.slot.word.load(Ordering::Acquire) & GRANTS != 0 {
            pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// A copy of the entry.
    pub(crate) fn entry(&self) -> Option<Entry> {
        self.read_entry(Entry::clone)
    }

    /// Reads the entry.
    pub(crate) fn read_entry<R>(&self, f: impl FnOnce(&Entry) -> R) -> Option<R> {
        self.slot.entry.with(|entry| {
            // SAFETY: only the owner writes the entry, and that is `self`.
            unsafe { (*entry).as_ref() }.map(f)
        })
    }

    /// Makes an entry valid under a key.
    pub(crate) fn publish(self, key: u8, entry: Entry) {
        self.put(entry);
        self.finish(VALID, key);
    }

    /// Makes an entry pending under a key: it can be read, and may not be used yet (V5).
    pub(crate) fn publish_pending(self, key: u8, entry: Entry) {
        self.put(entry);
        self.finish(PENDING, key);
    }

    /// Removes the entry and keeps the key: an allocated window that is not bound.
    pub(crate) fn vacate(self) {
        let key = self.slot.key();
        self.clear();
        self.finish(FREE, key);
    }

    /// Leaves the slot free under this key, for an entry that is put here later.
    pub(crate) fn free_with_key(self, key: u8) {
        self.clear();
        self.finish(FREE, key);
    }

    fn put(&self, entry: Entry) {
        self.slot.clear_touch();
        self.slot.entry.with_mut(|slot| {
            // SAFETY: `self` owns the slot, and `quiesce` saw no grant; lookups since then find the slot owned and do not
            // read the entry.
            unsafe { *slot = Some(entry) }
        });
    }

    fn clear(&self) {
        self.slot.entry.with_mut(|slot| {
            // SAFETY: `self` owns the slot, and `quiesce` saw no grant: no thread reads the entry while it is removed.
            unsafe { *slot = None }
        });
    }

    /// Leaves the slot as it was: an entry becomes valid again, under the same key.
    pub(crate) fn restore(self) {
        let state = self.read_entry(|_| VALID).unwrap_or(FREE);
        let key = self.slot.key();
        self.finish(state, key);
    }

    /// Removes the entry and increments the key.
    pub(crate) fn release(self) {
        drop(self);
    }

    fn finish(self, state: u64, key: u8) {
        self.slot.set_state(state, key);
        core::mem::forget(self);
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.clear();
        // M2: reusing an index changes the instance.
        let key = self.slot.key().wrapping_add(1);
        self.slot.set_state(FREE, key);
    }
}

#[cfg(test)]
mod tests;
