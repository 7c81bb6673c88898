//! The adapter: functions, each with its own share of everything (DESIGN §9, V1).
//! It promises that no two functions share a number or an STag, that the physical function is there from the start,
//! and that what is left is what can be given out. It refuses to look into functions.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;
use verbena_mem::Policy;

use crate::error::{Error, Object};
use crate::function::{FIRST_QP, Function, Shares};

/// What an adapter has in all. STag indexes and queue pair numbers have 24 bits on the wire.
const WHOLE: Shares = Shares {
    qps: (1 << 24) - FIRST_QP,
    cqs: 1 << 24,
    srqs: 1 << 24,
    ssqs: 1 << 24,
    pds: 1 << 24,
    stags: (1 << 24) - 1,
};

/// Where a function's numbers lie among the adapter's: what it calls its first is `start` here.
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
    /// STag indexes. Peers name them, so a function calls them by the same number.
    pub stags: Range<u32>,
}

/// An adapter.
#[derive(Debug)]
pub struct Adapter {
    policy: Policy,
    seed: u64,
    functions: RwLock<Vec<(Arc<Function>, Ranges)>>,
}

impl Adapter {
    /// An adapter whose physical function has these shares; `seed` makes STags hard to guess.
    pub fn new(shares: Shares, policy: Policy, seed: u64) -> Result<Adapter, Error> {
        let adapter = Adapter {
            policy,
            seed,
            functions: RwLock::new(Vec::new()),
        };
        adapter.add_function(shares)?;
        Ok(adapter)
    }

    /// One more function, with shares of what is left.
    pub fn add_function(&self, shares: Shares) -> Result<Arc<Function>, Error> {
        let mut functions = self.functions.write();
        let number = functions.len() as u32;
        let before = functions.last().map(|(_, ranges)| ranges);
        let ranges = Ranges {
            qps: next(
                Object::Qp,
                FIRST_QP,
                before.map(|r| &r.qps),
                shares.qps,
                WHOLE.qps,
            )?,
            cqs: next(Object::Cq, 1, before.map(|r| &r.cqs), shares.cqs, WHOLE.cqs)?,
            srqs: next(
                Object::Srq,
                1,
                before.map(|r| &r.srqs),
                shares.srqs,
                WHOLE.srqs,
            )?,
            ssqs: next(
                Object::Ssq,
                1,
                before.map(|r| &r.ssqs),
                shares.ssqs,
                WHOLE.ssqs,
            )?,
            pds: next(Object::Pd, 1, before.map(|r| &r.pds), shares.pds, WHOLE.pds)?,
            // STag 0 names nothing.
            stags: next(
                Object::Stag,
                1,
                before.map(|r| &r.stags),
                shares.stags,
                WHOLE.stags,
            )?,
        };
        // Functions must not be able to guess each other's STags from their own.
        let seed = self.seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let stags = ranges.stags.clone();
        let function = Arc::new(Function::new(number, shares, stags, self.policy, seed));
        functions.push((function.clone(), ranges));
        Ok(function)
    }

    /// Functions there are.
    pub fn functions(&self) -> u32 {
        self.functions.read().len() as u32
    }

    /// The function with this number; 0 is the physical one.
    pub fn function(&self, number: u32) -> Result<Arc<Function>, Error> {
        self.entry(number, |(function, _)| function.clone())
    }

    /// Where a function's numbers lie among the adapter's.
    pub fn ranges(&self, number: u32) -> Result<Ranges, Error> {
        self.entry(number, |(_, ranges)| ranges.clone())
    }

    /// The adapter's number of a queue pair that its function calls `qp`.
    pub fn number_of_qp(&self, function: u32, qp: u32) -> Result<u32, Error> {
        let qps = self.ranges(function)?.qps;
        let number = qp
            .checked_sub(FIRST_QP)
            .and_then(|at| qps.start.checked_add(at));
        let inside = number.filter(|n| qps.contains(n));
        inside.ok_or(Error::NoSuch {
            object: Object::Qp,
            number: qp,
        })
    }

    /// The function of a queue pair by the adapter's number, and what the function calls it.
    pub fn find_qp(&self, number: u32) -> Result<(Arc<Function>, u32), Error> {
        let functions = self.functions.read();
        let object = Object::Qp;
        let owner = functions.partition_point(|(_, ranges)| ranges.qps.end <= number);
        let found = functions
            .get(owner)
            .filter(|(_, r)| r.qps.contains(&number));
        let (function, ranges) = found.ok_or(Error::NoSuch { object, number })?;
        Ok((function.clone(), number - ranges.qps.start + FIRST_QP))
    }

    fn entry<R>(
        &self,
        number: u32,
        look: impl FnOnce(&(Arc<Function>, Ranges)) -> R,
    ) -> Result<R, Error> {
        let object = Object::Function;
        let functions = self.functions.read();
        let found = functions.get(number as usize);
        found.map(look).ok_or(Error::NoSuch { object, number })
    }
}

/// The range after the last one, if the whole has room for it.
fn next(
    object: Object,
    first: u32,
    before: Option<&Range<u32>>,
    share: u32,
    whole: u32,
) -> Result<Range<u32>, Error> {
    let start = before.map_or(first, |range| range.end);
    let end = start.checked_add(share).filter(|end| end - first <= whole);
    match end {
        Some(end) => Ok(start..end),
        None => Err(Error::Limit {
            object,
            limit: whole,
        }),
    }
}

#[cfg(test)]
mod tests;
