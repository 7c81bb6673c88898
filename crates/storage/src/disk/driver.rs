//! The thread that drives a disk's unit, and the queue of requests to it. Every request accepted ends: completed, failed, or lost with the
//! disk. After the disk is closed, the thread runs only until outstanding requests have completed.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use verbena::Memory;

use super::Buffer;
use super::pending::Promise;
use crate::blocks::{Blocks, Done, Failure, Request};
use crate::error::Error;
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
pub(super) struct Door {
    state: Mutex<State>,
    bell: OwnedFd,
    memory: crate::session::Ground,
    nothing: Memory,
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
struct Flying {
    promise: Promise,
    what: &'static str,
    at: u64,
}

impl Flying {
    fn land(self, result: Result<(), Failure>) {
        let (what, at) = (self.what, self.at);
        let failed = |failure| Error::Failed { what, at, failure };
        self.promise.fulfil(result.map_err(failed));
    }
}

impl Door {
    pub(super) fn new(unit: &Unit) -> Result<Door, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|e| Error::io("an event descriptor")(e.into()))?;
        let memory = unit.ground();
        let nothing = memory.memory(1)?;
        Ok(Door {
            state: Mutex::default(),
            bell,
            memory,
            nothing,
            block_size: unit.geometry().block_size,
            tickets: AtomicU64::new(0),
        })
    }

    pub(super) fn nothing(&self) -> &Memory {
        &self.nothing
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
                .fly(job.promise, &job.request)
                .land(Err(Failure::Cancelled));
        }
        if !state.cancelled.contains(&ticket) {
            state.cancelled.push(ticket);
        }
        drop(state);
        self.ring();
    }

    fn fly(&self, promise: Promise, request: &Request) -> Flying {
        let (what, at) = request.named(self.block_size);
        Flying { promise, what, at }
    }

    fn cancelled(&self) -> Vec<u64> {
        core::mem::take(&mut self.state().cancelled)
    }

    /// Queues a request. After the disk was closed it is dropped, which completes it as lost.
    pub(super) fn enter(&self, job: Job) {
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
            self.ring();
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.ring();
    }

    fn ring(&self) {
        // Fails only when the counter is at its maximum, and then the descriptor is readable as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn hush(&self) {
        let mut count = [0; 8];
        // Fails if the counter is 0.
        let _ = rustix::io::read(&self.bell, &mut count);
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
pub(super) fn drive(mut unit: Unit, door: &Door) {
    let mut under_way: HashMap<u64, Flying> = HashMap::new();
    let mut done: Vec<Done> = Vec::new();
    loop {
        while under_way.len() < unit.depth()
            && let Some(job) = door.take()
        {
            let flying = door.fly(job.promise, &job.request);
            match unit.submit(job.ticket, job.request) {
                Ok(()) => drop(under_way.insert(job.ticket, flying)),
                Err(error) => flying.promise.fulfil(Err(error)),
            }
        }
        for ticket in door.cancelled() {
            // Returns false if it has ended already.
            let _ = unit.cancel(ticket);
        }
        if under_way.is_empty() && door.is_closed() {
            break;
        }
        if unit.poll(&mut done).is_err() {
            break;
        }
        for Done { id, result } in done.drain(..) {
            if let Some(flying) = under_way.remove(&id) {
                flying.land(result);
            }
        }
        if under_way.len() < unit.depth() && !door.state().jobs.is_empty() {
            continue;
        }
        if unit.wait(&[door.bell.as_fd()], None).is_err() {
            break;
        }
        door.hush();
    }
    door.close();
    // An unanswered logout has no consequence.
    let _ = unit.close();
}
