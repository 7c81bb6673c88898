//! XRC domains: the shared receive queues that the requests of XRC initiators may name, by number.
//! A target queue pair belongs to one domain and finds no queue of another. A queue is found from its creation until its destruction
//! begins; what a target does with it is in [`crate::qp`].
//!
//! Numbers begin at a random one, so that a queue of another process, whose messages this adapter cannot deliver, is not mistaken for one of
//! this domain.

use std::collections::HashMap;
use std::sync::Arc;

use verbena_sync::locks::Mutex;
use verbena_wire::Srqn;

use crate::cq::Cq;
use crate::memory_scope::MemoryScope;
use crate::srq::Srq;

/// An XRC domain.
#[derive(Debug)]
pub struct XrcDomain {
    /// Added to the number that a queue has in its function.
    base: u32,
    srqs: Mutex<HashMap<Srqn, Arc<XrcSrq>>>,
}

/// A shared receive queue of an XRC domain, with what a target needs to receive into it.
#[derive(Debug)]
pub(crate) struct XrcSrq {
    pub(crate) srq: Arc<Srq>,
    /// Where its receives complete.
    pub(crate) cq: Arc<Cq>,
    /// The memory of its protection domain.
    pub(crate) tpt: MemoryScope,
}

impl XrcDomain {
    /// A domain without queues; `base` is random.
    pub fn new(base: u32) -> XrcDomain {
        XrcDomain {
            base,
            srqs: Mutex::new(HashMap::new()),
        }
    }

    /// The number by which requests name the queue with this number in its function.
    pub fn number_of(&self, srq: u32) -> Srqn {
        Srqn::wrapping(self.base.wrapping_add(srq))
    }

    pub(crate) fn add(&self, queue: XrcSrq) {
        let number = self.number_of(queue.srq.number());
        self.srqs.lock().insert(number, Arc::new(queue));
    }

    /// No request finds this queue any more.
    pub(crate) fn remove(&self, number: Srqn) {
        self.srqs.lock().remove(&number);
    }

    pub(crate) fn find(&self, number: Srqn) -> Option<Arc<XrcSrq>> {
        self.srqs.lock().get(&number).cloned()
    }

    /// Shared receive queues in it.
    #[cfg(test)]
    pub(crate) fn srq_count(&self) -> usize {
        self.srqs.lock().len()
    }
}
