//! What two programs intend to do on one connection: their regions, their work, their receives, and when.
//! It promises a plan whose outcome can be computed without running it: no byte is written by one side while the other reads it.
//! It refuses to know how the plan is carried out.

mod build;

pub use build::Builder;

use core::time::Duration;

use crate::peer::RegionSpec;
use crate::work::Work;

/// What must have happened on the same side before something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Nothing.
    Open,
    /// So many messages consumed receives here.
    Received(usize),
    /// So many work requests ended here.
    Completed(usize),
    /// So often a message found no receive here.
    Refused(usize),
}

/// Work to post, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The work; its number is its place in the plan.
    pub work: Work,
    /// What comes first.
    pub gate: Gate,
    /// How long after the posting before it.
    pub gap: Duration,
    /// The peer must refuse it and end the stream.
    pub bad: bool,
}

/// A receive to supply, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Bytes it holds; its number is its place in the plan.
    pub capacity: u32,
    /// What comes first.
    pub gate: Gate,
    /// How long after the supply before it.
    pub gap: Duration,
}

/// What one program intends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Its memory.
    pub regions: Vec<RegionSpec>,
    /// Its work.
    pub works: Vec<Posting>,
    /// Its receives.
    pub receives: Vec<Supply>,
    /// Work requests it lets be unfinished at once.
    pub depth: usize,
}

/// What both programs intend: the initiator's first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Both sides.
    pub sides: [Side; 2],
}

impl Plan {
    /// Some work is meant to be refused.
    pub fn has_bad(&self) -> bool {
        self.sides.iter().any(|s| s.works.iter().any(|w| w.bad))
    }

    /// Messages that consume a receive of `side`.
    pub fn deliveries_to(&self, side: usize) -> usize {
        let works = &self.sides[1 - side].works;
        works.iter().filter(|w| w.work.wants_receive()).count()
    }
}
