//! Which STag indexes are free, and which comes next.
//! Indexes look random to a peer, are reused as late as possible, and yet lie close together in memory.
//! It refuses to know what an entry holds; it remembers only what an index was taken for.

use std::collections::hash_map::Entry;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::draw::Draw;
use crate::entry::Pd;
use crate::window::WindowType;

/// Slots that are made together.
pub(super) const SEGMENT: usize = 1024;

/// A freed index rests until this many others have been freed, as long as fresh ones are left.
const REST: usize = 1024;

/// What an index was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Region(Pd),
    Window(WindowType, Pd),
    /// A region that a work request will register, with room for so many pages (M4).
    Later {
        pd: Pd,
        pages: u32,
    },
}

impl Purpose {
    fn pd(self) -> Pd {
        match self {
            Purpose::Region(pd) | Purpose::Window(_, pd) | Purpose::Later { pd, .. } => pd,
        }
    }
}

/// Pages that STags for registration by work request may have room for together, if nobody says: 64 GiB of the smallest.
const PAGES: u64 = 1 << 24;

/// Room of a table for registration by work request, in pages (M4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Room {
    /// Taken by STags that were given out, whether they use it or not.
    pub used: u64,
    /// All there is.
    pub limit: u64,
}

impl Purpose {
    fn pages(self) -> u64 {
        match self {
            Purpose::Later { pages, .. } => u64::from(pages),
            Purpose::Region(_) | Purpose::Window(..) => 0,
        }
    }
}

/// The free indexes of a table.
#[derive(Debug)]
pub(super) struct Indexes {
    range: Range<u32>,
    draw: Draw,
    /// Segments in the order in which they are filled.
    segments: Box<[u32]>,
    /// The slots of the segment that is being filled, in their order.
    slots: Box<[u32]>,
    /// Fresh indexes handed out so far.
    fresh: u32,
    resting: VecDeque<u32>,
    /// Taken by name before their turn came as fresh ones; they have none any more.
    ahead: HashSet<u32>,
    /// Indexes and domains are numbers of our own, which nobody can choose so that they collide.
    taken: FxHashMap<u32, Purpose>,
    /// How many of them each domain has.
    domains: FxHashMap<Pd, u32>,
    room: Room,
}

impl Indexes {
    pub(super) fn new(range: Range<u32>, seed: u64) -> Indexes {
        let mut draw = Draw::new(seed);
        let size = range.end.saturating_sub(range.start);
        Indexes {
            range,
            segments: draw.order(size.div_ceil(SEGMENT as u32)),
            slots: Box::default(),
            draw,
            fresh: 0,
            resting: VecDeque::new(),
            ahead: HashSet::new(),
            taken: FxHashMap::default(),
            domains: FxHashMap::default(),
            room: Room {
                used: 0,
                limit: PAGES,
            },
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.taken.len() as u32
    }

    /// The next index, and how far its key lies behind the slot's: neither can be told from outside. Without one, the room that
    /// was taken for it is given back.
    pub(super) fn take(&mut self, purpose: Purpose) -> Option<(u32, u8)> {
        let index = if self.resting.len() > REST {
            self.resting.pop_front()
        } else {
            self.next_fresh().or_else(|| self.resting.pop_front())
        };
        let Some(index) = index else {
            self.room.used -= purpose.pages();
            return None;
        };
        self.note(index, purpose);
        // The key at the slot is the last one's or the next after it: neither comes again at once.
        Some((index, 1 + self.draw.byte() % 254))
    }

    /// Takes this very index of the range; false if somebody has it.
    pub(super) fn take_at(&mut self, index: u32, purpose: Purpose) -> bool {
        if self.taken.contains_key(&index) {
            return false;
        }
        match self.resting.iter().position(|resting| *resting == index) {
            Some(at) => {
                self.resting.remove(at);
            }
            None => {
                self.ahead.insert(index);
            }
        }
        // What moves in has its room already, where it comes from.
        self.room.used += purpose.pages();
        self.note(index, purpose);
        true
    }

    fn note(&mut self, index: u32, purpose: Purpose) {
        self.taken.insert(index, purpose);
        *self.domains.entry(purpose.pd()).or_default() += 1;
    }

    /// Gives an index back; false if it was not taken.
    pub(super) fn free(&mut self, index: u32) -> bool {
        let Some(purpose) = self.taken.remove(&index) else {
            return false;
        };
        self.resting.push_back(index);
        self.room.used -= purpose.pages();
        if let Entry::Occupied(mut count) = self.domains.entry(purpose.pd()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    /// The entry of a taken index is on its way out: it is nobody's window any more, and still counts.
    pub(super) fn leave(&mut self, index: u32) {
        if let Some(purpose) = self.taken.get_mut(&index) {
            *purpose = Purpose::Region(purpose.pd());
        }
    }

    /// Indexes taken for a domain.
    pub(super) fn len_of(&self, pd: Pd) -> u32 {
        self.domains.get(&pd).copied().unwrap_or(0)
    }

    /// What an index was taken for, if it is taken.
    pub(super) fn purpose(&self, index: u32) -> Option<Purpose> {
        self.taken.get(&index).copied()
    }

    /// The type and domain of a window's index.
    pub(super) fn window(&self, index: u32) -> Option<(WindowType, Pd)> {
        match self.taken.get(&index)? {
            Purpose::Window(ty, pd) => Some((*ty, *pd)),
            Purpose::Region(_) | Purpose::Later { .. } => None,
        }
    }

    /// The domain and room of an index whose region is registered later.
    pub(super) fn later(&self, index: u32) -> Option<(Pd, u32)> {
        match self.taken.get(&index)? {
            Purpose::Later { pd, pages } => Some((*pd, *pages)),
            Purpose::Region(_) | Purpose::Window(..) => None,
        }
    }

    /// Room for all of those.
    pub(super) fn room(&self) -> Room {
        self.room
    }

    pub(super) fn limit_room(&mut self, limit: u64) {
        self.room.limit = limit;
    }

    /// Takes room for an index that is taken next; if there is not so much, the error says how much there is.
    pub(super) fn take_room(&mut self, pages: u32) -> Result<(), u64> {
        let left = self.room.limit.saturating_sub(self.room.used);
        if u64::from(pages) > left {
            return Err(left);
        }
        self.room.used += u64::from(pages);
        Ok(())
    }

    fn next_fresh(&mut self) -> Option<u32> {
        let size = self.range.end.saturating_sub(self.range.start);
        while self.fresh < size.next_multiple_of(SEGMENT as u32) {
            let index = self.permuted();
            self.fresh += 1;
            // The last segment may be cut short, and STag index 0 names nothing.
            if index >= size || self.range.start + index == 0 {
                continue;
            }
            let index = self.range.start + index;
            if self.ahead.is_empty() || !self.ahead.remove(&index) {
                return Some(index);
            }
        }
        None
    }

    /// The next fresh one. Segments in a random order, and the slots of each in another: filled one after the other, so that
    /// memory is made for what is used, and yet no index tells the next.
    fn permuted(&mut self) -> u32 {
        let (segment, slot) = (self.fresh as usize / SEGMENT, self.fresh as usize % SEGMENT);
        if slot == 0 {
            self.slots = self.draw.order(SEGMENT as u32);
        }
        self.segments[segment] * SEGMENT as u32 + self.slots[slot]
    }
}

/// A bijection that leaves no pattern a peer could follow (the finaliser of SplitMix64).
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
