//! The thread that drives a disk's unit, and the queue of requests to it. Every request accepted ends: completed, failed, or lost with the
//! disk. After the disk is closed, the thread runs only until outstanding requests have completed.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use verbena::Memory;

use super::Buffer;
use super::promise::Promise;
use crate::blocks::{Blocks, Done, Request};
use crate::error::{Error, Failure};
use crate::unit::Unit;

/// A request and the sender of its result.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number among all requests of the disk.
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) promise: Promise,
}

/// The queue of requests.
#[derive(Debug)]
pub(super) struct RequestQueue {
    state: Mutex<State>,
    eventfd: OwnedFd,
    memory: crate::session::MemorySource,
    empty_memory: Memory,
    block_size: u32,
    tickets: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Requests to cancel that were not in `jobs`.
    cancelled: Vec<u64>,
    closed: bool,
}

/// A submitted request.
struct OutstandingRequest {
    promise: Promise,
    what: &'static str,
    at: u64,
}

impl OutstandingRequest {
    fn complete(self, result: Result<(), Failure>) {
        let (what, at) = (self.what, self.at);
        let failed = |failure| Error::Failed { what, at, failure };
        self.promise.fulfil(result.map_err(failed));
    }
}

impl RequestQueue {
    pub(super) fn new(unit: &Unit) -> Result<RequestQueue, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let doorbell = eventfd(0, flags).map_err(|e| Error::io("an event descriptor")(e.into()))?;
        let memory = unit.memory_source();
        let nothing = memory.memory(1)?;
        Ok(RequestQueue {
            state: Mutex::default(),
            eventfd: doorbell,
            memory,
            empty_memory: nothing,
            block_size: unit.geometry().block_size,
            tickets: AtomicU64::new(0),
        })
    }

    pub(super) fn empty_memory(&self) -> &Memory {
        &self.empty_memory
    }

    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        Ok(Buffer::new(self.memory.memory(len)?, len))
    }

    /// The number of a new request.
    pub(super) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Cancels a request. Has no effect on one that has ended.
    pub(super) fn cancel(&self, ticket: u64) {
        let mut state = self.state();
        let waiting = state.jobs.iter().position(|job| job.ticket == ticket);
        if let Some(job) = waiting.and_then(|at| state.jobs.remove(at)) {
            drop(state);
            return self
                .start(job.promise, &job.request)
                .complete(Err(Failure::Cancelled));
        }
        if !state.cancelled.contains(&ticket) {
            state.cancelled.push(ticket);
        }
        drop(state);
        self.wake();
    }

    fn start(&self, promise: Promise, request: &Request) -> OutstandingRequest {
        let (what, at) = request.named(self.block_size);
        OutstandingRequest { promise, what, at }
    }

    fn take_cancelled(&self) -> Vec<u64> {
        core::mem::take(&mut self.state().cancelled)
    }

    /// Queues a request. After the disk was closed it is dropped, which completes it as lost.
    pub(super) fn push(&self, job: Job) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            drop(job);
            return;
        }
        let first = state.jobs.is_empty();
        state.jobs.push_back(job);
        drop(state);
        if first {
            self.wake();
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake();
    }

    fn wake(&self) {
        // Fails only when the counter is at its maximum, and then the descriptor is readable as well.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    fn clear_wake(&self) {
        let mut count = [0; 8];
        // Fails if the counter is 0.
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Job> {
        self.state().jobs.pop_front()
    }

    fn is_closed(&self) -> bool {
        let state = self.state();
        state.closed && state.jobs.is_empty()
    }
}

/// Drives a unit until the queue is closed and empty, and no request is outstanding.
pub(super) fn drive(mut unit: Unit, listener: &RequestQueue) {
    let mut under_way: HashMap<u64, OutstandingRequest> = HashMap::new();
    let mut done: Vec<Done> = Vec::new();
    loop {
        while under_way.len() < unit.depth()
            && let Some(job) = listener.take()
        {
            let flying = listener.start(job.promise, &job.request);
            match unit.submit(job.ticket, job.request) {
                Ok(()) => drop(under_way.insert(job.ticket, flying)),
                Err(error) => flying.promise.fulfil(Err(error)),
            }
        }
        for ticket in listener.take_cancelled() {
            // Returns false if it has ended already.
            let _ = unit.cancel(ticket);
        }
        if under_way.is_empty() && listener.is_closed() {
            break;
        }
        if unit.poll(&mut done).is_err() {
            break;
        }
        for Done { id, result } in done.drain(..) {
            if let Some(flying) = under_way.remove(&id) {
                flying.complete(result);
            }
        }
        if under_way.len() < unit.depth() && !listener.state().jobs.is_empty() {
            continue;
        }
        if unit.wait(&[listener.eventfd.as_fd()], None).is_err() {
            break;
        }
        listener.clear_wake();
    }
    listener.close();
    // An unanswered logout has no consequence.
    let _ = unit.close();
}
