//! The operations of a connection, and which side owns their buffers.
//! A buffer is owned either by the program or by a slot here until the adapter is done with it. What was received for a dropped
//! `recv` is kept for the next one. This module neither posts nor polls.

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::Arc;

use verbena_nic::{SendOp, Sge};

use crate::error::Error;
use crate::mr::{Buf, Memory, TemporaryMr};

/// The two queues of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueKind {
    Send,
    Recv,
}

/// The memory of an operation, kept until the adapter is done with it.
#[derive(Debug)]
pub(crate) enum OpMemory {
    /// A buffer, which is returned.
    Buf(Buf),
    /// Memory that the program may use meanwhile.
    Memory(#[expect(dead_code, reason = "only kept alive")] Memory),
    /// A slice, which its scope deregisters.
    Slice(Arc<TemporaryMr>),
}

impl OpMemory {
    /// The buffer, if the operation was begun with one.
    pub(crate) fn buf(self) -> Option<Buf> {
        match self {
            OpMemory::Buf(buf) => Some(buf),
            OpMemory::Memory(_) | OpMemory::Slice(_) => None,
        }
    }
}

/// An operation in a form that can be posted later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpRequest {
    /// None is a receive.
    pub(crate) op: Option<SendOp>,
    pub(crate) sge: Sge,
}

impl OpRequest {
    fn queue_kind(&self) -> QueueKind {
        match self.op {
            Some(_) => QueueKind::Send,
            None => QueueKind::Recv,
        }
    }
}

/// The result of a successful operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpOutput {
    pub(crate) len: u32,
    /// Bytes of it placed in the buffer.
    pub(crate) placed: u32,
    pub(crate) immediate: Option<u32>,
}

/// The name of an operation: its slot and the slot's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpId {
    index: u32,
    generation: u32,
}

impl OpId {
    pub(crate) fn to_wr_id(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_wr_id(id: u64) -> OpId {
        let (index, turn) = (id as u32, (id >> 32) as u32);
        OpId {
            index,
            generation: turn,
        }
    }
}

#[derive(Debug)]
enum Stage {
    Queued,
    Posted,
    Done(Result<OpOutput, Error>),
}

#[derive(Debug)]
struct Work {
    request: OpRequest,
    memory: OpMemory,
    stage: Stage,
    /// Its `Pending` exists.
    claimed: bool,
    waker: Option<Waker>,
    /// Receives take messages in this order.
    number: u64,
}

impl Work {
    /// Whether its message can be returned by another receive: one in memory of the program is already where it
    /// belongs.
    fn is_transferable(&self) -> bool {
        self.request.queue_kind() == QueueKind::Recv && matches!(self.memory, OpMemory::Buf(_))
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    work: Option<Work>,
}

#[derive(Debug, Default)]
struct Queue {
    posted: usize,
    backlog: VecDeque<OpId>,
    /// A thread is posting, and checks the backlog again before it stops.
    posting: bool,
}

/// Done after the lock is released: wakers run the program's code, and freeing memory waits for the adapter.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) released: Vec<OpMemory>,
}

impl DeferredWork {
    /// To be called without any lock.
    pub(crate) fn run(self) {
        drop(self.released);
        for waker in self.wakers {
            waker.wake();
        }
    }
}

/// All operations of one connection.
#[derive(Debug)]
pub(crate) struct Ops {
    /// Of sends and of receives.
    depths: [usize; 2],
    slots: Vec<Slot>,
    free: Vec<u32>,
    queues: [Queue; 2],
    /// Receives whose `Pending` was dropped, oldest first.
    unclaimed: VecDeque<OpId>,
    next_number: u64,
    /// Operations with a waker.
    pub(crate) awaited: usize,
    /// Sleeping threads.
    pub(crate) sleepers: usize,
    /// Spare buffers for the results of atomics.
    atomic_buffers: Vec<Buf>,
    closed: Option<Error>,
}

impl Ops {
    pub(crate) fn new(depths: [usize; 2]) -> Ops {
        Ops {
            depths,
            slots: Vec::new(),
            free: Vec::new(),
            queues: Default::default(),
            unclaimed: VecDeque::new(),
            next_number: 0,
            awaited: 0,
            sleepers: 0,
            atomic_buffers: Vec::new(),
            closed: None,
        }
    }

    fn queue(&mut self, lane: QueueKind) -> &mut Queue {
        &mut self.queues[lane as usize]
    }

    fn work(&mut self, id: OpId) -> Option<&mut Work> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.work
            .as_mut()
            .filter(|_| slot.generation == id.generation)
    }

    fn remove(&mut self, id: OpId) -> Option<Work> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let work = slot.work.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        if work.waker.is_some() {
            self.awaited -= 1;
        }
        Some(work)
    }

    /// Adds an operation, to be posted in its turn. Fails on a closed connection and returns `kept`.
    pub(crate) fn begin(
        &mut self,
        ask: OpRequest,
        kept: OpMemory,
    ) -> Result<OpId, (Error, OpMemory)> {
        if let Some(error) = &self.closed {
            return Err((error.clone(), kept));
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let turn = slot.generation;
        slot.work = Some(Work {
            request: ask,
            memory: kept,
            stage: Stage::Queued,
            claimed: true,
            waker: None,
            number: self.next_number,
        });
        self.next_number += 1;
        let id = OpId {
            index,
            generation: turn,
        };
        self.queue(ask.queue_kind()).backlog.push_back(id);
        Ok(id)
    }

    /// Takes over the oldest receive whose `Pending` was dropped.
    pub(crate) fn claim(&mut self) -> Option<OpId> {
        let id = self.unclaimed.pop_front()?;
        let work = self.work(id)?;
        work.claimed = true;
        Some(id)
    }

    /// If true, the caller has to post until [`next`](Ops::next) returns `None`.
    pub(crate) fn start_posting(&mut self, lane: QueueKind) -> bool {
        let depth = self.depths[lane as usize];
        let queue = self.queue(lane);
        let starts = !queue.posting && !queue.backlog.is_empty() && queue.posted < depth;
        queue.posting |= starts;
        starts
    }

    /// The next operation to post, in order; `None` ends the posting.
    pub(crate) fn next(&mut self, lane: QueueKind) -> Option<(OpId, OpRequest)> {
        let depth = self.depths[lane as usize];
        let queue = self.queue(lane);
        let id = match queue.backlog.pop_front() {
            Some(id) if queue.posted < depth => id,
            other => {
                other
                    .into_iter()
                    .for_each(|id| queue.backlog.push_front(id));
                queue.posting = false;
                return None;
            }
        };
        queue.posted += 1;
        let work = self.work(id)?;
        work.stage = Stage::Posted;
        Some((id, work.request))
    }

    /// Ends an operation: the adapter will not access its buffer again.
    pub(crate) fn finish(
        &mut self,
        id: OpId,
        end: Result<OpOutput, Error>,
        after: &mut DeferredWork,
    ) {
        let Some(work) = self.work(id) else { return };
        let lane = work.request.queue_kind();
        match work.stage {
            Stage::Done(_) => return,
            Stage::Queued => {}
            Stage::Posted => self.queue(lane).posted -= 1,
        }
        let Some(work) = self.work(id) else { return };
        let keeps = work.claimed || (work.is_transferable() && end.is_ok());
        work.stage = Stage::Done(end);
        if let Some(waker) = work.waker.take() {
            after.wakers.push(waker);
            self.awaited -= 1;
        }
        if !keeps {
            self.unclaimed.retain(|other| *other != id);
            after
                .released
                .extend(self.remove(id).map(|work| work.memory));
        }
    }

    /// Ends all operations with this error and accepts no more. The queue pair must have been destroyed.
    pub(crate) fn close(&mut self, error: &Error, after: &mut DeferredWork) {
        self.closed.get_or_insert_with(|| error.clone());
        let ids: Vec<OpId> = (0_u32..)
            .zip(&self.slots)
            .map(|(index, slot)| OpId {
                index,
                generation: slot.generation,
            })
            .collect();
        for id in ids {
            self.finish(id, Err(error.clone()), after);
        }
        for queue in &mut self.queues {
            queue.backlog.clear();
        }
    }

    /// Takes the result of an operation and what was kept for it, if it has ended.
    pub(crate) fn take(&mut self, id: OpId) -> Option<(Result<OpOutput, Error>, OpMemory)> {
        if !matches!(self.work(id)?.stage, Stage::Done(_)) {
            return None;
        }
        let work = self.remove(id)?;
        match work.stage {
            Stage::Done(end) => Some((end, work.memory)),
            _ => None,
        }
    }

    /// Whether it has ended, and its result was taken or not.
    pub(crate) fn is_finished(&mut self, id: OpId) -> bool {
        self.work(id)
            .is_none_or(|work| matches!(work.stage, Stage::Done(_)))
    }

    /// Sets the waker to call when it ends.
    pub(crate) fn set_waker(&mut self, id: OpId, waker: &Waker) {
        let Some(work) = self.work(id) else { return };
        let before = work.waker.replace(waker.clone());
        if before.is_none() {
            self.awaited += 1;
        }
    }

    /// Its `Pending` was dropped.
    pub(crate) fn abandon(&mut self, id: OpId, after: &mut DeferredWork) {
        let Some(work) = self.work(id) else { return };
        work.claimed = false;
        let (inherited, number) = (work.is_transferable(), work.number);
        let over = match &work.stage {
            Stage::Done(end) => !inherited || end.is_err(),
            _ => false,
        };
        if work.waker.take().is_some() {
            self.awaited -= 1;
        }
        if over {
            after
                .released
                .extend(self.remove(id).map(|work| work.memory));
        } else if inherited {
            let number_of = |ops: &mut Ops, id| ops.work(id).map_or(0, |work| work.number);
            let mut at = self.unclaimed.len();
            while at > 0 {
                let earlier = self.unclaimed[at - 1];
                if number_of(self, earlier) < number {
                    break;
                }
                at -= 1;
            }
            self.unclaimed.insert(at, id);
        }
    }

    /// Whether operations wait to be posted.
    pub(crate) fn has_backlog(&self) -> bool {
        self.queues.iter().any(|queue| !queue.backlog.is_empty())
    }

    /// Sends that have not ended.
    pub(crate) fn pending_sends(&self) -> usize {
        let queue = &self.queues[QueueKind::Send as usize];
        queue.posted + queue.backlog.len()
    }

    /// A spare buffer for the result of an atomic, if there is one.
    pub(crate) fn take_atomic_buffer(&mut self) -> Option<Buf> {
        self.atomic_buffers.pop()
    }

    /// Keeps it as a spare; returns it if there are enough.
    pub(crate) fn recycle_atomic_buffer(&mut self, word: Buf) -> Option<Buf> {
        if self.atomic_buffers.len() >= self.depths[QueueKind::Send as usize] {
            return Some(word);
        }
        self.atomic_buffers.push(word);
        None
    }
}
