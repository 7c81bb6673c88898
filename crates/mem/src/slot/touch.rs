//! The touched state of a slot (M9): the first message that ended in a one-touch entry, and the key of an entry that it invalidated.
//! Of two concurrent touches exactly one succeeds, by compare-and-swap; the state is cleared when another entry is put in the slot.
//! The entry itself is removed by the caller.

use verbena_sync::primitives::Ordering;

use super::{BUSY, FREE, Owned, STATE, Slot, key_of};
use crate::touch::Seq;

const AHEAD: u64 = 1 << 32;
const HELD: u64 = 2 << 32;

/// The message that touched a one-touch entry (M9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It arrived out of order; its last byte has this number in its stream.
    Ahead(Seq),
    /// It is being placed; the holder of the matching [`Spend`](crate::Spend) removes the entry afterwards. The number identifies it.
    Held(u32),
}

impl Touch {
    fn to_word(self) -> u64 {
        match self {
            Touch::Ahead(end) => AHEAD | u64::from(end.get()),
            Touch::Held(number) => HELD | u64::from(number),
        }
    }

    fn from_word(word: u64) -> Option<Touch> {
        let number = word as u32;
        match word & !u64::from(u32::MAX) {
            AHEAD => Some(Touch::Ahead(Seq::new(number))),
            HELD => Some(Touch::Held(number)),
            _ => None,
        }
    }
}

impl Slot {
    /// The touch of the entry that is here, or was here last.
    pub(crate) fn touch(&self) -> Option<Touch> {
        Touch::from_word(self.touch.load(Ordering::Acquire))
    }

    /// Touches the entry, under a grant; fails with the touch that came before (M9).
    pub(crate) fn set_touch(&self, touch: Touch) -> Result<(), Option<Touch>> {
        self.touch
            .compare_exchange(0, touch.to_word(), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Touch::from_word)
    }

    /// The entry that was here in another process was removed by a touch there (V1).
    pub(crate) fn set_spent(&self) {
        let word = Touch::Held(0).to_word();
        self.touch.store(word, Ordering::Release);
    }

    /// Clears the touch, for another entry or when the index is freed.
    pub(crate) fn clear_touch(&self) {
        self.touch.store(0, Ordering::Release);
    }

    /// The key of an entry that was touched and removed, until another entry is put here.
    pub(crate) fn spent_key(&self) -> Option<u8> {
        let word = self.word.load(Ordering::Acquire);
        let free = word & STATE == FREE;
        (free && self.touch().is_some()).then(|| key_of(word).wrapping_sub(1))
    }

    /// A lookup of this key failed because of a touch: the entry was removed by it, or is being removed.
    pub(crate) fn was_spent(&self, key: u8) -> bool {
        let word = self.word.load(Ordering::Acquire);
        let gone = match word & STATE {
            FREE => key_of(word) == key.wrapping_add(1),
            BUSY => key_of(word) == key,
            _ => false,
        };
        gone && self.touch().is_some()
    }
}

impl Owned<'_> {
    /// This key is that of the entry that is here, or of the last one if it was removed by a touch (M9).
    pub(crate) fn matches_key(&self, key: u8) -> bool {
        let now = self.slot.key();
        let spent = self.slot.touch().is_some() && self.entry().is_none();
        key == now || (spent && key == now.wrapping_sub(1))
    }
}
