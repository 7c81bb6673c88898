//! What a touch leaves on a slot (M9): who was the first, and the key of an entry that died of it.
//! It promises that of two messages which end in an entry at once exactly one is the first, and that what is left is gone when
//! another entry is put there. It refuses to take an entry away; whoever touched it does.

use super::{BUSY, FREE, Owned, STATE, Slot, key_of};
use crate::sync::Ordering;
use crate::touch::Seq;

const AHEAD: u64 = 1 << 32;
const HELD: u64 = 2 << 32;

/// What a message that ended in a one-touch entry left behind (M9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It came out of order, and ends with this byte of its stream.
    Ahead(Seq),
    /// It is being placed, and whoever does so takes the entry away afterwards. The number tells it from others.
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
    /// Who touched the entry that stands here, or stood here last.
    pub(crate) fn touch(&self) -> Option<Touch> {
        Touch::from_word(self.touch.load(Ordering::Acquire))
    }

    /// Touches the entry, under a grant; or says who did before: of two, exactly one is the first (M9).
    pub(crate) fn mark(&self, touch: Touch) -> Result<(), Option<Touch>> {
        self.touch
            .compare_exchange(0, touch.to_word(), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Touch::from_word)
    }

    /// Nothing of the last entry is worth knowing any more: its index goes to somebody else.
    pub(crate) fn forget_touch(&self) {
        self.touch.store(0, Ordering::Release);
    }

    /// The key of an entry that was touched and is gone, as long as nothing else stands here.
    pub(crate) fn spent(&self) -> Option<u8> {
        let word = self.word.load(Ordering::Acquire);
        let free = word & STATE == FREE;
        (free && self.touch().is_some()).then(|| key_of(word).wrapping_sub(1))
    }

    /// Whoever asked for this key and got nothing came after a touch: the entry is spent, or being taken away.
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
    /// Whoever says this key means what stands here, or what stood here last and was spent (M9).
    pub(crate) fn answers_to(&self, key: u8) -> bool {
        let now = self.slot.key();
        let spent = self.slot.touch().is_some() && self.entry().is_none();
        key == now || (spent && key == now.wrapping_sub(1))
    }
}
