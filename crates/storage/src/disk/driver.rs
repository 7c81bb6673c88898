//! The thread that drives a disk's unit, and the door through which requests come to it.
//! It promises that a request which is let in ends: done, failed, or lost with the disk. It refuses to keep a closed disk open for longer
//! than what was begun takes.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use verbena::Memory;

use super::Buffer;
use super::pending::Promise;
use crate::blocks::{Blocks, Done, Request};
use crate::error::Error;
use crate::unit::Unit;

/// A request and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) promise: Promise,
}

/// Where requests come in.
#[derive(Debug)]
pub(super) struct Door {
    state: Mutex<State>,
    bell: OwnedFd,
    memory: crate::session::Ground,
    nothing: Memory,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
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
        })
    }

    pub(super) fn nothing(&self) -> &Memory {
        &self.nothing
    }

    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        Ok(Buffer::new(self.memory.memory(len)?, len))
    }

    /// Lets a request in; behind a closed door it is lost, and told so.
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
        // It fails only when the counter is full, and then the descriptor is readable as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn hush(&self) {
        let mut count = [0; 8];
        // Nobody rang, perhaps.
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

/// Drives a unit until the door is closed and everything is done.
pub(super) fn drive(mut unit: Unit, door: &Door) {
    let mut under_way: HashMap<u64, Promise> = HashMap::new();
    let (mut next, mut done): (u64, Vec<Done>) = (0, Vec::new());
    loop {
        while under_way.len() < unit.depth()
            && let Some(Job { request, promise }) = door.take()
        {
            next += 1;
            match unit.submit(next, request) {
                Ok(()) => drop(under_way.insert(next, promise)),
                Err(error) => promise.fulfil(Err(error)),
            }
        }
        if under_way.is_empty() && door.is_closed() {
            break;
        }
        if unit.poll(&mut done).is_err() {
            break;
        }
        for Done { id, result } in done.drain(..) {
            if let Some(promise) = under_way.remove(&id) {
                promise.fulfil(result.map_err(|failure| Error::Request { failure }));
            }
        }
        let full = under_way.len() >= unit.depth();
        let bell = [door.bell.as_fd()];
        let beside = if full { &[] } else { &bell[..] };
        if !full && !door.state().jobs.is_empty() {
            continue;
        }
        if unit.wait(beside, None).is_err() {
            break;
        }
        door.hush();
    }
    door.close();
    // A target that does not answer a goodbye misses nothing.
    let _ = unit.close();
}
