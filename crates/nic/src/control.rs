//! A control queue pair (V5): registrations, creations and destructions that are queued and done later, in order.
//! A request is done after all that were posted before it, the number of what it creates is known when it is posted, and each
//! request that is done ends in one completion, if there is a completion queue. Requests are done by the thread that calls
//! [`Function::run_control`](crate::Function::run_control).
//!
//! Until its request is done, a new object is *pending*. Work that needs a pending region waits for it (`qp/wait.rs`);
//! a pending queue pair or completion queue cannot be used ([`Error::Pending`]), except by later requests on the same
//! control queue pair: the purpose is to hide the latency of registrations.

pub(crate) mod error;

pub use error::{ControlError, MAX_REQUESTS, Subject};

use core::fmt;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::{Misuse, Reserved};
use verbena_sync::locks::{Mutex, MutexGuard};
use verbena_wire::Stag;

use crate::cq::Cq;
use crate::error::Error;
use crate::function::NewQp;
use crate::wc::{ControlOp, Status, Wc, WcOp};

/// How a control request ended, for the thread that runs the control queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlResult {
    /// The consumer's number of the request.
    pub id: u64,
    /// The operation.
    pub op: ControlOp,
    /// The object.
    pub subject: Subject,
    /// The error if it failed: the completion has only a status.
    pub outcome: Result<(), Error>,
    /// Bytes that the connection of a destroyed queue pair should still send before it is closed.
    pub final_bytes: Vec<u8>,
}

/// A queued request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) work: Work,
}

/// The operation of a request.
#[derive(Debug)]
pub(crate) enum Work {
    Register(Reserved),
    AllocateWindow(Reserved),
    Deregister(Stag),
    CreateQp(u32, Box<NewQp>),
    DestroyQp(u32),
    CreateCq(u32, usize),
    DestroyCq(u32),
    /// Done by the code that drives the function.
    Task(ControlOp, Task),
}

/// A request that the poster of it knows how to do; true if it succeeded.
pub(crate) struct Task(pub(crate) Box<dyn FnOnce() -> bool + Send>);

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

impl Work {
    pub(crate) fn op(&self) -> ControlOp {
        match self {
            Work::Register(_) => ControlOp::Register,
            Work::AllocateWindow(_) => ControlOp::AllocateWindow,
            Work::Deregister(_) => ControlOp::Deregister,
            Work::CreateQp(..) => ControlOp::CreateQp,
            Work::DestroyQp(_) => ControlOp::DestroyQp,
            Work::CreateCq(..) => ControlOp::CreateCq,
            Work::DestroyCq(_) => ControlOp::DestroyCq,
            Work::Task(op, _) => *op,
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        match self {
            Work::Register(reserved) | Work::AllocateWindow(reserved) => {
                Subject::Stag(reserved.stag())
            }
            Work::Deregister(stag) => Subject::Stag(*stag),
            Work::CreateQp(qp, _) | Work::DestroyQp(qp) => Subject::Qp(*qp),
            Work::CreateCq(cq, _) | Work::DestroyCq(cq) => Subject::Cq(*cq),
            Work::Task(..) => Subject::Task,
        }
    }

    fn is_removal(&self) -> bool {
        matches!(
            self,
            Work::Deregister(_) | Work::DestroyQp(_) | Work::DestroyCq(_)
        )
    }
}

/// A control queue pair.
#[derive(Debug)]
pub struct Control {
    number: u32,
    cq: Option<Arc<Cq>>,
    depth: usize,
    queue: Mutex<Queue>,
    /// Held while a request is done, so that requests are done in order even if two threads run the queue.
    execution_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// A request was taken and is being done; it still counts towards `depth`.
    busy: bool,
    /// Objects whose removal is queued or being done.
    removing: HashSet<Subject>,
    ended: bool,
}

impl Control {
    /// An empty one for `depth` requests, which completes in `cq` if there is one.
    pub(crate) fn new(number: u32, depth: usize, cq: Option<Arc<Cq>>) -> Result<Control, Error> {
        if !(1..=MAX_REQUESTS).contains(&depth) {
            return Err(ControlError::Size(depth).into());
        }
        Ok(Control {
            number,
            cq,
            depth,
            queue: Mutex::default(),
            execution_lock: Mutex::new(()),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Requests that are queued or being done.
    pub fn outstanding(&self) -> usize {
        let queue = self.queue.lock();
        queue.requests.len() + usize::from(queue.busy)
    }

    /// Nothing can be posted any more: it was destroyed, or its completion queue lost an entry.
    pub fn has_ended(&self) -> bool {
        self.queue.lock().ended
    }

    /// Adds the request that `make` makes, if there is room for it.
    pub(crate) fn post<R>(
        &self,
        id: u64,
        make: impl FnOnce() -> Result<(Work, R), Error>,
    ) -> Result<R, Error> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Err(ControlError::Ended.into());
        }
        if queue.requests.len() + usize::from(queue.busy) >= self.depth {
            return Err(ControlError::Full(self.depth).into());
        }
        let (work, answer) = make()?;
        if work.is_removal() && !queue.removing.insert(work.subject()) {
            return Err(ControlError::BeingRemoved(work.subject()).into());
        }
        queue.requests.push_back(Request { id, work });
        Ok(answer)
    }

    /// The next request, and the guard that keeps other threads from doing one at the same time.
    pub(crate) fn take(&self) -> Option<(Request, MutexGuard<'_, ()>)> {
        let turn = self.execution_lock.lock();
        let mut queue = self.queue.lock();
        let request = queue.requests.pop_front()?;
        queue.busy = true;
        Some((request, turn))
    }

    /// Completes a request that was taken; false if its completion was lost.
    pub(crate) fn complete(&self, done: &ControlResult, out: &mut Outbox) -> bool {
        {
            let mut queue = self.queue.lock();
            queue.busy = false;
            let removes = matches!(
                done.op,
                ControlOp::Deregister | ControlOp::DestroyQp | ControlOp::DestroyCq
            );
            if removes {
                queue.removing.remove(&done.subject);
            }
        }
        let Some(cq) = &self.cq else {
            return true;
        };
        let wc = Wc {
            id: done.id,
            qpn: self.number,
            op: WcOp::Control(done.op),
            status: status_of(&done.outcome),
            ..Wc::default()
        };
        cq.push(wc, out)
    }

    /// Rejects later requests, and returns those that wait.
    pub(crate) fn end(&self) -> VecDeque<Request> {
        let mut queue = self.queue.lock();
        queue.ended = true;
        queue.removing.clear();
        core::mem::take(&mut queue.requests)
    }

    /// Waits until no request is being done.
    pub(crate) fn quiesce(&self) {
        drop(self.execution_lock.lock());
    }
}

/// The completion status of a control request.
fn status_of(outcome: &Result<(), Error>) -> Status {
    match outcome {
        Ok(()) => Status::Success,
        Err(Error::Memory(Misuse::Unmapped { .. })) => Status::LocProtErr,
        Err(_) => Status::LocQpOpErr,
    }
}

#[cfg(test)]
mod tests;
