//! Allocation of STag indexes, and what each was taken for.
//! The order of indexes cannot be predicted by a peer; a freed index is reused after at least [`QUARANTINE`] others were freed while fresh
//! ones are left. Segments are filled one after the other, so that few have to be allocated.

use std::collections::hash_map::Entry;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::stag_rng::StagRng;
use crate::entry::Pd;
use crate::window::WindowType;

/// Slots that are allocated together.
pub(super) const SEGMENT: usize = 1024;

/// A freed index is not reused until this many others have been freed, as long as fresh ones are left.
const QUARANTINE: usize = 1024;

/// What an index was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Region(Pd),
    Window(WindowType, Pd),
    /// A region that a work request will register, with room for this many pages (M4).
    WrRegion {
        pd: Pd,
        pages: u32,
    },
}

impl Purpose {
    fn pd(self) -> Pd {
        match self {
            Purpose::Region(pd) | Purpose::Window(_, pd) | Purpose::WrRegion { pd, .. } => pd,
        }
    }
}

/// Default limit of pages for all STags of registration by work request together: 64 GiB in pages of 4 KiB.
const PAGES: u64 = 1 << 24;

/// Room of a table for registration by work request, in pages (M4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageQuota {
    /// Taken by STags that were allocated, whether they use it or not.
    pub used: u64,
    /// The limit for all together.
    pub limit: u64,
}

impl Purpose {
    fn pages(self) -> u64 {
        match self {
            Purpose::WrRegion { pages, .. } => u64::from(pages),
            Purpose::Region(_) | Purpose::Window(..) => 0,
        }
    }
}

/// The free indexes of a table.
#[derive(Debug)]
pub(super) struct Indexes {
    range: Range<u32>,
    rng: StagRng,
    /// Segments in the order in which they are filled.
    segments: Box<[u32]>,
    /// The slots of the segment that is being filled, in their order.
    slots: Box<[u32]>,
    /// Fresh indexes taken or skipped so far.
    fresh: u32,
    quarantine: VecDeque<u32>,
    /// Taken by [`take_at`](Indexes::take_at) before they came up as fresh ones, which skips them.
    ahead: HashSet<u32>,
    /// The keys are numbers that this process chooses, so that a peer cannot cause collisions.
    taken: FxHashMap<u32, Purpose>,
    /// How many of them each domain has.
    domains: FxHashMap<Pd, u32>,
    page_quota: PageQuota,
}

impl Indexes {
    pub(super) fn new(range: Range<u32>, seed: u64) -> Indexes {
        let mut draw = StagRng::new(seed);
        let size = range.end.saturating_sub(range.start);
        Indexes {
            range,
            segments: draw.permutation(size.div_ceil(SEGMENT as u32)),
            slots: Box::default(),
            rng: draw,
            fresh: 0,
            quarantine: VecDeque::new(),
            ahead: HashSet::new(),
            taken: FxHashMap::default(),
            domains: FxHashMap::default(),
            page_quota: PageQuota {
                used: 0,
                limit: PAGES,
            },
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.taken.len() as u32
    }

    /// The next index, and what is to be added to the slot's key: a peer can predict neither. If there is no index, the room that
    /// was taken for it is given back.
    pub(super) fn take(&mut self, purpose: Purpose) -> Option<(u32, u8)> {
        let index = if self.quarantine.len() > QUARANTINE {
            self.quarantine.pop_front()
        } else {
            self.next_fresh().or_else(|| self.quarantine.pop_front())
        };
        let Some(index) = index else {
            self.page_quota.used -= purpose.pages();
            return None;
        };
        self.record_taken(index, purpose);
        // The last key used is the slot's or the one before it: adding 1 to 254 gives neither of the two.
        Some((index, 1 + self.rng.byte() % 254))
    }

    /// Takes this index of the range; false if it is in use.
    pub(super) fn take_at(&mut self, index: u32, purpose: Purpose) -> bool {
        if self.taken.contains_key(&index) {
            return false;
        }
        match self.quarantine.iter().position(|resting| *resting == index) {
            Some(at) => {
                self.quarantine.remove(at);
            }
            None => {
                self.ahead.insert(index);
            }
        }
        // Not limited: a region that is taken over has its room already in the process that it comes from.
        self.page_quota.used += purpose.pages();
        self.record_taken(index, purpose);
        true
    }

    fn record_taken(&mut self, index: u32, purpose: Purpose) {
        self.taken.insert(index, purpose);
        *self.domains.entry(purpose.pd()).or_default() += 1;
    }

    /// Gives an index back; false if it was not taken.
    pub(super) fn free(&mut self, index: u32) -> bool {
        let Some(purpose) = self.taken.remove(&index) else {
            return false;
        };
        self.quarantine.push_back(index);
        self.page_quota.used -= purpose.pages();
        if let Entry::Occupied(mut count) = self.domains.entry(purpose.pd()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    /// The entry of a taken index is being removed: the index no longer counts as a window's, but is still in use.
    pub(super) fn clear_window(&mut self, index: u32) {
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
            Purpose::Region(_) | Purpose::WrRegion { .. } => None,
        }
    }

    /// The domain and room of an index for registration by work request.
    pub(super) fn wr_region(&self, index: u32) -> Option<(Pd, u32)> {
        match self.taken.get(&index)? {
            Purpose::WrRegion { pd, pages } => Some((*pd, *pages)),
            Purpose::Region(_) | Purpose::Window(..) => None,
        }
    }

    /// The room of all of those together.
    pub(super) fn page_quota(&self) -> PageQuota {
        self.page_quota
    }

    pub(super) fn set_page_limit(&mut self, limit: u64) {
        self.page_quota.limit = limit;
    }

    /// Takes room for the index that is taken next; if there is not enough, the error is what is left.
    pub(super) fn reserve_pages(&mut self, pages: u32) -> Result<(), u64> {
        let left = self.page_quota.limit.saturating_sub(self.page_quota.used);
        if u64::from(pages) > left {
            return Err(left);
        }
        self.page_quota.used += u64::from(pages);
        Ok(())
    }

    fn next_fresh(&mut self) -> Option<u32> {
        let size = self.range.end.saturating_sub(self.range.start);
        while self.fresh < size.next_multiple_of(SEGMENT as u32) {
            let index = self.permuted();
            self.fresh += 1;
            // The last segment may be longer than the range, and STag index 0 is not used.
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

    /// The next fresh index. Segments come in random order and are filled one after the other, each in a random order of its slots: memory
    /// is allocated for what is used, and no index allows a guess at the next.
    fn permuted(&mut self) -> u32 {
        let (segment, slot) = (self.fresh as usize / SEGMENT, self.fresh as usize % SEGMENT);
        if slot == 0 {
            self.slots = self.rng.permutation(SEGMENT as u32);
        }
        self.segments[segment] * SEGMENT as u32 + self.slots[slot]
    }
}
