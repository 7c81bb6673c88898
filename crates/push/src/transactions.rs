//! Requests that wait: ours for the peer's answers, and the peer's for ours.
//! It promises that a context is answered once, and that neither list grows beyond its limit.
//! It refuses to know what the answers do.

use std::collections::{BTreeMap, VecDeque};

use verbena_wire::push::Operation;

/// What we asked the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Open {
    /// To stop using these pools of ours.
    Flush(Vec<u32>),
    /// To take this pool of its own back.
    Release(u32),
    /// Something of its configuration service.
    Config,
}

/// The peer asked us to stop using pools of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recall {
    pub(crate) context: u64,
    /// Those that transfers are still under way to.
    pub(crate) busy: Vec<u32>,
}

/// Requests that were said again and answered; each may be answered once more. Of older ones nothing is on its way any more.
const ECHOES: usize = 64;

/// A request of ours.
#[derive(Debug)]
struct Ours {
    open: Open,
    /// The request, to say it again, and whether that was done.
    request: Vec<u8>,
    again: bool,
}

/// All that waits.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    next: u64,
    ours: BTreeMap<u64, Ours>,
    echoes: VecDeque<u64>,
    /// The peer's configuration requests.
    asked: BTreeMap<u64, Operation>,
    /// The peer's flush requests, in the order in which they came.
    recalls: Vec<Recall>,
}

impl Transactions {
    /// A context for something that is not answered, too.
    pub(crate) fn context(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    pub(crate) fn waiting(&self) -> usize {
        self.ours.len()
    }

    pub(crate) fn open(&mut self, context: u64, open: Open, request: Vec<u8>) {
        let again = false;
        let ours = Ours {
            open,
            request,
            again,
        };
        self.ours.insert(context, ours);
    }

    pub(crate) fn get(&self, context: u64) -> Option<&Open> {
        self.ours.get(&context).map(|ours| &ours.open)
    }

    pub(crate) fn close(&mut self, context: u64) -> Option<Open> {
        let ours = self.ours.remove(&context)?;
        if ours.again {
            self.echoes.truncate(ECHOES - 1);
            self.echoes.push_front(context);
        }
        Some(ours.open)
    }

    /// It was answered already, and asked more than once.
    pub(crate) fn is_echo(&self, context: u64) -> bool {
        self.echoes.contains(&context)
    }

    /// The requests that wait, as they were sent, to be said again.
    pub(crate) fn again(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.ours.values_mut().map(|ours| {
            ours.again = true;
            ours.request.clone()
        })
    }

    /// The peer asks; `Some(false)` if it asked already, `None` if it asks too much.
    pub(crate) fn ask(&mut self, context: u64, operation: Operation, most: u32) -> Option<bool> {
        if self.asked.contains_key(&context) {
            return Some(false);
        }
        (self.asked.len() < most as usize).then_some(())?;
        self.asked.insert(context, operation);
        Some(true)
    }

    pub(crate) fn answer(&mut self, context: u64) -> Option<Operation> {
        self.asked.remove(&context)
    }

    /// The peer wants pools back; `false` if it has asked too often.
    pub(crate) fn recall(&mut self, recall: Recall, most: u32) -> bool {
        let room = self.recalls.len() < most as usize;
        let known = self.recalls.iter().any(|r| r.context == recall.context);
        if room && !known {
            self.recalls.push(recall);
        }
        room || known
    }

    /// Nothing is under way to this pool any more.
    pub(crate) fn drained(&mut self, pool: u32) {
        for recall in &mut self.recalls {
            recall.busy.retain(|p| *p != pool);
        }
    }

    /// The contexts of flush requests that can be answered.
    pub(crate) fn answerable(&mut self) -> Vec<u64> {
        let done = |recall: &Recall| recall.busy.is_empty();
        let contexts = self.recalls.iter().filter(|r| done(r)).map(|r| r.context);
        let contexts = contexts.collect();
        self.recalls.retain(|r| !done(r));
        contexts
    }

    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.ours.len(), self.asked.len(), self.recalls.len())
    }
}
