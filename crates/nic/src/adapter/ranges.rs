//! The ranges of the adapter's numbers that its functions have: one contiguous range of each kind per function (V1).
//! Ranges do not overlap, a range that was given back is reused as late as possible, and a failed allocation says how much is left.

use std::ops::Range;

use crate::error::Error;
use crate::function::{FIRST_QP, KINDS, Shares};
use crate::object::Object;

/// A function's ranges in the adapter's numbers: the function's first number of a kind is `start` here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// Queue pairs.
    pub qps: Range<u32>,
    /// Completion queues.
    pub cqs: Range<u32>,
    /// Shared receive queues.
    pub srqs: Range<u32>,
    /// Shared send queues.
    pub ssqs: Range<u32>,
    /// Protection domains.
    pub pds: Range<u32>,
    /// STag indexes. They appear on the wire, so a function uses the same numbers.
    pub stags: Range<u32>,
    /// Event queues.
    pub event_queues: Range<u32>,
    /// Vectors.
    pub vectors: Range<u32>,
}

impl Ranges {
    /// All that an adapter has. STag indexes and queue pair numbers have 24 bits on the wire, and STag index 0 is not used.
    pub const WHOLE: Ranges = Ranges {
        qps: FIRST_QP..1 << 24,
        cqs: 1..(1 << 24) + 1,
        srqs: 1..(1 << 24) + 1,
        ssqs: 1..(1 << 24) + 1,
        pds: 1..(1 << 24) + 1,
        stags: 1..1 << 24,
        event_queues: 0..1 << 13,
        vectors: 0..1 << 13,
    };

    /// How many of each kind.
    pub fn shares(&self) -> Shares {
        Shares::of(self.each().map(|range| range.end - range.start))
    }

    /// In the order of [`Shares::each`].
    fn each(&self) -> [&Range<u32>; KINDS] {
        [
            &self.qps,
            &self.cqs,
            &self.srqs,
            &self.ssqs,
            &self.pds,
            &self.stags,
            &self.event_queues,
            &self.vectors,
        ]
    }
}

/// Where the search for the next range of each kind begins: after the last one, so that numbers which were given back are reused late.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor([u32; KINDS]);

impl Cursor {
    /// A range of each kind that overlaps none of `taken`; the cursor stays as it is if one of them cannot be found.
    pub(crate) fn allocate<'a>(
        &mut self,
        shares: &Shares,
        taken: &(impl Iterator<Item = &'a Ranges> + Clone),
    ) -> Result<Ranges, Error> {
        let mut found = [const { 0..0 }; KINDS];
        for (kind, (object, share)) in shares.each().into_iter().enumerate() {
            let others = taken.clone().map(|ranges| ranges.each()[kind].clone());
            let whole = Ranges::WHOLE.each()[kind].clone();
            found[kind] = find_range(object, &whole, others.collect(), self.0[kind], share)?;
        }
        for (cursor, range) in self.0.iter_mut().zip(&found) {
            *cursor = range.end;
        }
        let [qps, cqs, srqs, ssqs, pds, stags, event_queues, vectors] = found;
        Ok(Ranges {
            qps,
            cqs,
            srqs,
            ssqs,
            pds,
            stags,
            event_queues,
            vectors,
        })
    }
}

/// The longest free range of each kind.
pub(super) fn available_shares<'a>(taken: &(impl Iterator<Item = &'a Ranges> + Clone)) -> Shares {
    Shares::of(core::array::from_fn(|kind| {
        let others = taken.clone().map(|ranges| ranges.each()[kind].clone());
        longest(&gaps(Ranges::WHOLE.each()[kind], others.collect()))
    }))
}

/// A range of `asked` numbers: the first one after `from`, else the first one of all.
fn find_range(
    object: Object,
    whole: &Range<u32>,
    taken: Vec<Range<u32>>,
    from: u32,
    asked: u32,
) -> Result<Range<u32>, Error> {
    if asked == 0 {
        // A function without any of this kind takes no room, so the position does not matter.
        return Ok(from.max(whole.start)..from.max(whole.start));
    }
    let gaps = gaps(whole, taken);
    let behind = gaps.iter().map(|gap| gap.start.max(from)..gap.end);
    let all = behind.chain(gaps.iter().cloned());
    let mut fit = all.filter(|gap| gap.end.saturating_sub(gap.start) >= asked);
    match fit.next() {
        Some(gap) => Ok(gap.start..gap.start + asked),
        None => Err(Error::Share {
            object,
            requested: asked,
            available: longest(&gaps),
        }),
    }
}

fn longest(gaps: &[Range<u32>]) -> u32 {
    let lengths = gaps.iter().map(|gap| gap.end - gap.start);
    lengths.max().unwrap_or(0)
}

/// The ranges that no function has.
fn gaps(whole: &Range<u32>, mut taken: Vec<Range<u32>>) -> Vec<Range<u32>> {
    taken.retain(|range| !range.is_empty());
    taken.sort_unstable_by_key(|range| range.start);
    let mut gaps = Vec::new();
    let mut at = whole.start;
    for range in taken {
        if at < range.start {
            gaps.push(at..range.start);
        }
        at = range.end;
    }
    if at < whole.end {
        gaps.push(at..whole.end);
    }
    gaps
}
