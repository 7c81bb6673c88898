//! XRC domains: the shared receive queues that the requests of XRC initiators may name, by number.
//! A target queue pair belongs to one domain and finds no queue of another. A queue is found from its creation until its destruction
//! begins; what a target does with it is in [`crate::qp`].
//!
//! Numbers of a domain of one process begin at a random one. A domain of several processes divides the numbers among them; how the
//! process of a number is found and reached is behind [`XrcProcesses`].

pub(crate) mod record;

use core::fmt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, MutexGuard};
use verbena_wire::Srqn;

use crate::cq::Cq;
use crate::memory_scope::MemoryScope;
use crate::srq::Srq;

pub use record::LONGEST;

/// Numbers below this one are queue pairs; those that wait for a receive on behalf of another process have one from here on.
pub const FIRST_WAITER: u32 = 1 << 24;

/// The other processes of a domain.
pub trait XrcProcesses: fmt::Debug + Send + Sync {
    /// The process that has the queue with this number, if it is not this one. There may be none.
    fn process_of(&self, number: Srqn) -> Option<u32>;

    /// Opens a conversation with a process for a target; none if there is no such process, or it cannot be reached.
    ///
    /// As soon as the conversation may have a record or room, or is over, the queue pair is woken as for memory.
    fn connect(&self, process: u32, qp: u32) -> Option<Arc<dyn XrcPath>>;
}

/// A conversation between a target and the process of a queue. It is over when it is dropped. No call blocks.
pub trait XrcPath: fmt::Debug + Send + Sync {
    /// Sends a record; false if there is no room now. Fails if the conversation is over.
    fn send(&self, head: &[u8], body: &[u8]) -> Result<bool, PathClosed>;

    /// Receives a record to `room`, of [`LONGEST`] bytes, and returns its length; none if there is none.
    fn receive(&self, room: &mut [u8]) -> Result<Option<usize>, PathClosed>;

    /// The time.
    fn now(&self) -> Time;
}

/// The conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathClosed;

/// An XRC domain.
#[derive(Debug)]
pub struct XrcDomain {
    /// In a domain of one process: added to the number that a queue has in its function.
    base: u32,
    srqs: Mutex<HashMap<Srqn, Arc<XrcSrq>>>,
    shared: Option<Shared>,
}

/// What a domain of several processes has.
#[derive(Debug)]
struct Shared {
    /// Its numbers in this process: the first, and how many.
    numbers: (u32, u32),
    given: Mutex<Given>,
    processes: Box<dyn XrcProcesses>,
}

/// The numbers of this process that are in use, and the offset of the next.
#[derive(Debug)]
struct Given {
    next: u32,
    /// By the number of the queue in its function.
    by_queue: HashMap<u32, Srqn>,
    taken: HashSet<Srqn>,
}

impl Shared {
    /// Gives a queue a number that none has, as late as possible after it was one's before.
    fn give(&self, srq: u32) -> bool {
        let (first, count) = self.numbers;
        let mut given = self.given.lock();
        for _ in 0..count {
            let number = Srqn::wrapping(first + given.next);
            given.next = (given.next + 1) % count;
            if given.taken.insert(number) {
                given.by_queue.insert(srq, number);
                return true;
            }
        }
        false
    }

    fn take_back(&self, srq: u32) {
        let mut given = self.given.lock();
        if let Some(number) = given.by_queue.remove(&srq) {
            given.taken.remove(&number);
        }
    }
}

/// A shared receive queue of an XRC domain, with what a target needs to receive into it.
#[derive(Debug)]
pub(crate) struct XrcSrq {
    pub(crate) srq: Arc<Srq>,
    /// Where its receives complete.
    pub(crate) cq: Arc<Cq>,
    /// The memory of its protection domain.
    pub(crate) tpt: MemoryScope,
    /// It is being destroyed. Held while a message of another process takes a receive or completes one.
    destroyed: Mutex<bool>,
}

impl XrcSrq {
    pub(crate) fn new(srq: Arc<Srq>, cq: Arc<Cq>, tpt: MemoryScope) -> XrcSrq {
        XrcSrq {
            srq,
            cq,
            tpt,
            destroyed: Mutex::new(false),
        }
    }

    /// Keeps it from being destroyed for a moment; none if that has begun.
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, bool>> {
        let destroyed = self.destroyed.lock();
        (!*destroyed).then_some(destroyed)
    }
}

impl XrcDomain {
    /// A domain of this process, without queues; `base` is random.
    pub fn new(base: u32) -> XrcDomain {
        XrcDomain {
            base,
            srqs: Mutex::new(HashMap::new()),
            shared: None,
        }
    }

    /// A domain that other processes have, too: `numbers` are the first number of this process, and how many it has. `base` is random.
    pub fn shared(base: u32, numbers: (u32, u32), processes: Box<dyn XrcProcesses>) -> XrcDomain {
        let given = Given {
            next: base % numbers.1.max(1),
            by_queue: HashMap::new(),
            taken: HashSet::new(),
        };
        XrcDomain {
            shared: Some(Shared {
                numbers,
                given: Mutex::new(given),
                processes,
            }),
            ..XrcDomain::new(base)
        }
    }

    /// The number by which requests name a queue of the domain, from its number in its function.
    pub fn number_of(&self, srq: u32) -> Srqn {
        match &self.shared {
            None => Srqn::wrapping(self.base.wrapping_add(srq)),
            Some(shared) => {
                let given = shared.given.lock();
                given.by_queue.get(&srq).copied().unwrap_or_default()
            }
        }
    }

    /// False if all numbers are in use.
    #[must_use = "requests do not find the queue"]
    pub(crate) fn add(&self, queue: XrcSrq) -> bool {
        let srq = queue.srq.number();
        let is_numbered = self.shared.as_ref().is_none_or(|shared| shared.give(srq));
        if is_numbered {
            let number = self.number_of(srq);
            self.srqs.lock().insert(number, Arc::new(queue));
        }
        is_numbered
    }

    /// No request finds this queue any more, nothing of another process completes there, and those of them that wait for a receive are woken.
    pub(crate) fn remove(&self, number: Srqn, out: &mut Outbox) {
        let removed = self.srqs.lock().remove(&number);
        if let Some(queue) = removed {
            *queue.destroyed.lock() = true;
            if let Some(shared) = &self.shared {
                shared.take_back(queue.srq.number());
            }
            for waiter in queue.srq.waiters_from(FIRST_WAITER) {
                out.wake(waiter);
            }
        }
    }

    pub(crate) fn find(&self, number: Srqn) -> Option<Arc<XrcSrq>> {
        self.srqs.lock().get(&number).cloned()
    }

    /// The other processes of the domain, if it has any.
    pub(crate) fn processes(&self) -> Option<&dyn XrcProcesses> {
        self.shared.as_ref().map(|shared| &*shared.processes)
    }

    /// Shared receive queues in it.
    #[cfg(test)]
    pub(crate) fn srq_count(&self) -> usize {
        self.srqs.lock().len()
    }
}
