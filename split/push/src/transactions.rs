//! Open requests: ours that wait for the peer's answers, and the peer's that wait for ours. A context is answered once, and each
//! list is limited by `Limits::transactions`.

use std::collections::{BTreeMap, VecDeque};

use verbena_split_wire::push::Operation;

/// A request to the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenRequest {
    /// To stop using these pools of ours.
    Flush(Vec<u32>),
    /// To take this pool of the peer back.
    Release(u32),
    /// To its configuration service.
    Config,
}

/// A request of the peer to stop using pools of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recall {
    pub(crate) context: u64,
    /// The pools with transfers still in flight.
    pub(crate) busy: Vec<u32>,
}

/// Requests that were repeated and answered are remembered, since a second answer may follow; of older ones none is expected.
const MAX_REPEATED: usize = 64;

/// A request of ours that is open.
#[derive(Debug)]
struct OwnRequest {
    open: OpenRequest,
    /// The encoded request, to repeat it, and whether that was done.
    request: Vec<u8>,
    is_repeated: bool,
}

/// All open requests.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    next: u64,
    own: BTreeMap<u64, OwnRequest>,
    answered_repeats: VecDeque<u64>,
    /// The peer's configuration requests.
    peer_requests: BTreeMap<u64, Operation>,
    /// The peer's flush requests, in order of arrival.
    recalls: Vec<Recall>,
}

impl Transactions {
    /// A new context; also for messages without an answer.
    pub(crate) fn context(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    pub(crate) fn open_count(&self) -> usize {
        self.own.len()
    }

    pub(crate) fn open(&mut self, context: u64, open: OpenRequest, request: Vec<u8>) {
        let again = false;
        let ours = OwnRequest {
            open,
            request,
            is_repeated: again,
        };
        self.own.insert(context, ours);
    }

    pub(crate) fn get(&self, context: u64) -> Option<&OpenRequest> {
        self.own.get(&context).map(|ours| &ours.open)
    }

    pub(crate) fn close(&mut self, context: u64) -> Option<OpenRequest> {
        let ours = self.own.remove(&context)?;
        if ours.is_repeated {
            self.answered_repeats.truncate(MAX_REPEATED - 1);
            self.answered_repeats.push_front(context);
        }
        Some(ours.open)
    }

    /// Whether the request was repeated and has been answered already.
    pub(crate) fn is_repeated_reply(&self, context: u64) -> bool {
        self.answered_repeats.contains(&context)
    }

    /// The open requests as they were sent, to be repeated.
    pub(crate) fn repeat_open(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.own.values_mut().map(|ours| {
            ours.is_repeated = true;
            ours.request.clone()
        })
    }

    /// Adds a request of the peer; `Some(false)` if it is open already, `None` if `most` are open.
    pub(crate) fn add_peer_request(
        &mut self,
        context: u64,
        operation: Operation,
        most: u32,
    ) -> Option<bool> {
        if self.peer_requests.contains_key(&context) {
            return Some(false);
        }
        (self.peer_requests.len() < most as usize).then_some(())?;
        self.peer_requests.insert(context, operation);
        Some(true)
    }

    pub(crate) fn remove_peer_request(&mut self, context: u64) -> Option<Operation> {
        self.peer_requests.remove(&context)
    }

    /// Adds a flush request of the peer; `false` if `most` are open.
    pub(crate) fn add_recall(&mut self, recall: Recall, most: u32) -> bool {
        let room = self.recalls.len() < most as usize;
        let known = self.recalls.iter().any(|r| r.context == recall.context);
        if room && !known {
            self.recalls.push(recall);
        }
        room || known
    }

    /// No transfer to this pool is in flight any more.
    pub(crate) fn drained(&mut self, pool: u32) {
        for recall in &mut self.recalls {
            recall.busy.retain(|p| *p != pool);
        }
    }

    /// Removes the flush requests that can be answered and returns their contexts.
    pub(crate) fn take_answerable(&mut self) -> Vec<u64> {
        let done = |recall: &Recall| recall.busy.is_empty();
        let contexts = self.recalls.iter().filter(|r| done(r)).map(|r| r.context);
        let contexts = contexts.collect();
        self.recalls.retain(|r| !done(r));
        contexts
    }

    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.own.len(), self.peer_requests.len(), self.recalls.len())
    }
}
