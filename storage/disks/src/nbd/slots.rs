//! Allocator for a client's memory: runs of units, first fit, so that few pages are ever touched. Allocated runs do not overlap, and
//! releasing a run consumes it. Only the bookkeeping is here, not the memory.

use std::ops::Range;

/// Bytes per unit: small requests take one.
const UNIT: usize = 32 << 10;
const UNITS: usize = 512;
/// Total size in bytes.
pub(super) const TOTAL: usize = UNIT * UNITS;

/// An allocated run; it may be longer than requested.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    units: Range<usize>,
}

impl Run {
    /// The first byte.
    pub(super) fn offset(&self) -> usize {
        self.units.start * UNIT
    }
}

/// The units in use.
#[derive(Debug)]
pub(super) struct Slots {
    taken: [bool; UNITS],
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots {
            taken: [false; UNITS],
        }
    }

    /// Allocates a run of at least `bytes`, if there is one.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<Run> {
        let need = bytes.div_ceil(UNIT).max(1);
        let mut start = 0;
        for at in 0..UNITS {
            if self.taken[at] {
                start = at + 1;
            } else if at + 1 - start == need {
                let units = start..at + 1;
                self.taken[units.clone()].fill(true);
                return Some(Run { units });
            }
        }
        None
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "a released run must not be used again"
    )]
    pub(super) fn release(&mut self, run: Run) {
        self.taken[run.units].fill(false);
    }
}

#[cfg(test)]
mod tests;
