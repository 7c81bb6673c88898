//! How many objects of each kind a function may have, or has. The numbers are those that its tables enforce.

use crate::object::Object;

/// How many objects a function may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Shared send queues.
    pub ssqs: u32,
    /// Protection domains.
    pub pds: u32,
    /// Regions and windows together.
    pub stags: u32,
    /// Event queues.
    pub event_queues: u32,
    /// Interrupt vectors; event queues without one of their own share one (E10).
    pub vectors: u32,
}

impl Shares {
    /// None of any kind.
    pub const NONE: Shares = Shares {
        qps: 0,
        cqs: 0,
        srqs: 0,
        ssqs: 0,
        pds: 0,
        stags: 0,
        event_queues: 0,
        vectors: 0,
    };

    /// So many of each kind, in the order of [`each`](Shares::each).
    pub(crate) fn of(counts: [u32; KINDS]) -> Shares {
        let [qps, cqs, srqs, ssqs, pds, stags, event_queues, vectors] = counts;
        Shares {
            qps,
            cqs,
            srqs,
            ssqs,
            pds,
            stags,
            event_queues,
            vectors,
        }
    }

    /// Each kind and how many of it.
    pub fn each(&self) -> [(Object, u32); KINDS] {
        [
            (Object::Qp, self.qps),
            (Object::Cq, self.cqs),
            (Object::Srq, self.srqs),
            (Object::Ssq, self.ssqs),
            (Object::Pd, self.pds),
            (Object::Stag, self.stags),
            (Object::EventQueue, self.event_queues),
            (Object::Vector, self.vectors),
        ]
    }
}

/// Kinds of objects that a function has a share of.
pub const KINDS: usize = 8;

impl core::fmt::Display for Shares {
    /// The kinds with a nonzero count.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let some = self.each().into_iter().filter(|(_, count)| *count > 0);
        for (at, (object, count)) in some.enumerate() {
            let between = if at == 0 { "" } else { ", " };
            write!(f, "{between}{count} of kind {object}")?;
        }
        if *self == Shares::NONE {
            f.write_str("nothing")?;
        }
        Ok(())
    }
}

impl Default for Shares {
    /// Enough for ten thousand connections and a hundred thousand regions, many times over.
    fn default() -> Shares {
        Shares {
            qps: 1 << 17,
            cqs: 1 << 17,
            srqs: 1 << 17,
            ssqs: 1 << 17,
            pds: 1 << 17,
            stags: 1 << 20,
            event_queues: 32,
            vectors: 32,
        }
    }
}
