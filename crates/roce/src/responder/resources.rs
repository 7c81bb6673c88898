//! What a responder remembers of the reads and atomics that it served last, so that a repeated request is answered like the first time.
//! The requester has at most as many outstanding, so an older one is never repeated and is forgotten for a new one.

use std::collections::VecDeque;

use verbena_wire::roce::{Psn, Reth};

use crate::settings::Mtu;

/// The answer that a request was served with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// The memory is read again.
    Read(Reth),
    /// The original value of the word.
    Atomic(u64),
}

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) first: Psn,
    pub(super) psns: u32,
    pub(super) msn: u32,
    pub(super) answer: Served,
}

/// The requests that were served last, the oldest first.
#[derive(Debug, Clone)]
pub(super) struct Resources {
    served: VecDeque<Resource>,
    limit: usize,
}

impl Resources {
    pub(super) fn new(limit: u8) -> Resources {
        Resources {
            served: VecDeque::new(),
            limit: usize::from(limit),
        }
    }

    /// Reads and atomics that were agreed.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn add(&mut self, resource: Resource) {
        while self.served.len() >= self.limit.max(1) {
            self.served.pop_front();
        }
        self.served.push_back(resource);
    }

    fn find(&self, psn: Psn) -> Option<&Resource> {
        let within = |resource: &&Resource| psn.minus(resource.first) < resource.psns;
        self.served.iter().find(within)
    }

    /// The first PSN of the request that this PSN belongs to.
    pub(super) fn range_of(&self, psn: Psn) -> Option<Psn> {
        self.find(psn).map(|resource| resource.first)
    }

    /// The first PSN and the MSN of a Read that is repeated from this PSN on; `None` if it is not a part of one that was served.
    pub(super) fn repeated_read(&self, psn: Psn, reth: Reth, mtu: Mtu) -> Option<(Psn, u32)> {
        let resource = self.find(psn)?;
        let Served::Read(served) = resource.answer else {
            return None;
        };
        let offset = u64::from(psn.minus(resource.first)) * u64::from(mtu.bytes());
        let is_rest = reth.rkey == served.rkey
            && reth.va.get() == served.va.get().wrapping_add(offset)
            && u64::from(reth.len) + offset <= u64::from(served.len);
        is_rest.then_some((resource.first, resource.msn))
    }

    /// The original value and the MSN of an atomic operation that is repeated.
    pub(super) fn repeated_atomic(&self, psn: Psn) -> Option<(u64, u32)> {
        let resource = self.find(psn)?;
        match resource.answer {
            Served::Atomic(original) => Some((original, resource.msn)),
            Served::Read(_) => None,
        }
    }
}
