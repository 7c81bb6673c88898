//! Posted receives, in posting order.
//! They are taken in that order, and no more wait than the queue's depth. Scatter lists are not checked here, but when a message
//! is placed.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::wc::Status;
use crate::wr::{ReceiveWr, Sge};

/// Scatter lists up to this long are stored in the queue itself.
const INLINE_SGES: usize = 2;

/// A queued receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// The consumer's id.
    pub id: u64,
    /// Where the message goes.
    pub scatter: SmallVec<[Sge; INLINE_SGES]>,
    /// It fails with this status when a message takes it: a fault for tests. Not moved.
    #[serde(skip)]
    pub fault: Option<Status>,
}

impl Receive {
    /// A copy of the request, if it has no more than `limit` elements.
    pub fn new(wr: &ReceiveWr<'_>, limit: usize) -> Result<Receive, PostError> {
        let got = wr.scatter.len();
        if got > limit {
            return Err(PostError::TooManySges { got, limit });
        }
        Ok(Receive {
            id: wr.id,
            scatter: SmallVec::from_slice(wr.scatter),
            fault: None,
        })
    }

    /// Bytes it can hold; longer lists than 2^32 − 1 bytes count as that.
    pub fn capacity(&self) -> u32 {
        let sum = |sum: u32, sge: &Sge| sum.saturating_add(sge.len);
        self.scatter.iter().fold(0, sum)
    }
}

/// Why a receive cannot be posted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue is full with {0} requests")]
    Full(usize),
    /// More scatter elements than the queue was created for.
    #[error("{got} scatter/gather elements, at most {limit}")]
    TooManySges {
        /// Elements given.
        got: usize,
        /// Elements allowed.
        limit: usize,
    },
}

/// A queue of receives.
#[derive(Debug)]
pub struct ReceiveQueue {
    queue: VecDeque<Receive>,
    depth: usize,
    max_sge: usize,
}

impl ReceiveQueue {
    /// An empty queue for `depth` receives of at most `pieces` scatter elements.
    pub fn new(depth: usize, pieces: usize) -> ReceiveQueue {
        ReceiveQueue {
            queue: VecDeque::new(),
            depth,
            max_sge: pieces,
        }
    }

    /// Receives that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Most receives that may wait.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Most scatter elements of one receive.
    pub fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Adds a receive.
    pub fn post(&mut self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        if self.queue.len() >= self.depth {
            return Err(PostError::Full(self.depth));
        }
        self.queue.push_back(Receive::new(wr, self.max_sge)?);
        Ok(())
    }

    /// Puts a receive that was taken back in front, even if the queue has been filled meanwhile.
    pub fn put_back(&mut self, receive: Receive) {
        self.queue.push_front(receive);
    }

    /// The oldest receive, which stays.
    pub fn front(&self) -> Option<&Receive> {
        self.queue.front()
    }

    /// Takes the oldest receive.
    pub fn take(&mut self) -> Option<Receive> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests;
