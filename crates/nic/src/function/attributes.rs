//! The attributes of a function: how many objects it may have and how large they may be.
//! Each value is the one that the verb compares with. What a connection negotiates, such as read depths, is not here.

use crate::cq;
use crate::error::{Error, Object};
use crate::qp::Limits;

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

/// The attributes of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// How many objects it may have.
    pub shares: Shares,
    /// Send requests, and receives, of one queue pair.
    pub requests: usize,
    /// Scatter or gather elements of one request, reads included: the sink of a read need not be a single STag (V3).
    pub max_sge: usize,
    /// Bytes of inline data.
    pub inline: usize,
    /// Entries of one completion queue.
    pub entries: usize,
    /// Receives of one shared receive queue.
    pub shared_receives: usize,
    /// Requests of one shared send queue.
    pub shared_sends: usize,
    /// Bytes of one message; eight are reserved for immediate data sent with it.
    pub message: u32,
}

impl Attributes {
    /// The attributes of a function with these shares.
    pub fn new(shares: Shares) -> Attributes {
        Attributes {
            shares,
            requests: 1 << 15,
            max_sge: 64,
            inline: 4096,
            entries: cq::MAX_ENTRIES,
            shared_receives: 1 << 18,
            shared_sends: 1 << 18,
            message: u32::MAX - 8,
        }
    }

    pub(super) fn check_qp(&self, limits: &Limits) -> Result<(), Error> {
        check_limit("send requests", limits.sends, self.requests)?;
        check_limit("receives", limits.receives, self.requests)?;
        check_limit("pieces of a request", limits.max_sge, self.max_sge)?;
        check_limit("bytes of inline data", limits.inline, self.inline)
    }

    pub(super) fn check_srq(&self, receives: usize, pieces: usize) -> Result<(), Error> {
        check_limit("shared receives", receives, self.shared_receives)?;
        check_limit("pieces of a receive", pieces, self.max_sge)
    }

    pub(super) fn check_ssq(&self, requests: usize) -> Result<(), Error> {
        check_limit("shared sends", requests, self.shared_sends)
    }
}

pub(super) fn check_limit(what: &'static str, asked: usize, limit: usize) -> Result<(), Error> {
    if asked <= limit {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        requested: asked,
        limit,
    })
}
