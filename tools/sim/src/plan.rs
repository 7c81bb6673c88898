//! What two programs do on one connection: their regions, their work, their receives, and when.
//! The outcome of a plan can be computed without running it: no byte is written by one side while the other reads it.

mod build;

pub use build::Builder;

use core::time::Duration;

use crate::peer::RegionSpec;
use crate::work::Work;

/// What must have happened on the same side before an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Nothing.
    Open,
    /// This many messages consumed receives here.
    Received(usize),
    /// This many work requests ended here.
    Completed(usize),
    /// A message found no receive here this many times.
    Refused(usize),
}

/// Work to post, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The work; its number is its index in the plan.
    pub work: Work,
    /// The condition.
    pub gate: Gate,
    /// How long after the previous posting.
    pub gap: Duration,
    /// The peer must refuse it and end the stream.
    pub bad: bool,
}

/// A receive to post, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Its capacity in bytes; its number is its index in the plan.
    pub capacity: u32,
    /// The condition.
    pub gate: Gate,
    /// How long after the previous receive.
    pub gap: Duration,
}

/// The plan of one program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Its memory.
    pub regions: Vec<RegionSpec>,
    /// Its work.
    pub works: Vec<Posting>,
    /// Its receives.
    pub receives: Vec<Supply>,
    /// Limit of unfinished work requests.
    pub depth: usize,
}

/// The plan of both programs: the initiator's first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Both sides.
    pub sides: [Side; 2],
}

impl Plan {
    /// Whether some work must be refused.
    pub fn has_bad(&self) -> bool {
        self.sides.iter().any(|s| s.works.iter().any(|w| w.bad))
    }

    /// Messages that consume a receive of `side`.
    pub fn deliveries_to(&self, side: usize) -> usize {
        let works = &self.sides[1 - side].works;
        works.iter().filter(|w| w.work.wants_receive()).count()
    }
}
