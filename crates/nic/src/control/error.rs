//! Why a request of a control queue pair is rejected, and the objects that such requests are about. A rejected request has changed nothing.

use verbena_wire::Stag;

/// Most requests that one control queue pair holds.
pub const MAX_REQUESTS: usize = 1 << 16;

/// Why a request of a control queue pair was rejected. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No control queue pair has this size.
    #[error("a control queue pair holds 1 to {MAX_REQUESTS} requests, not {0}")]
    Size(usize),
    /// The queue is full.
    #[error("the control queue is full with {0} requests")]
    Full(usize),
    /// A request to remove this object is queued already.
    #[error("{0:?} is being removed already")]
    BeingRemoved(Subject),
    /// A task failed, and its own result has the reason; or an object that it names is not there.
    #[error("the request, or an earlier one that it depends on, has failed")]
    Failed,
    /// It was destroyed, or its completion queue lost an entry: nothing can be posted any more.
    #[error("the control queue pair has ended")]
    Ended,
}

/// What a control request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A region or window.
    Stag(Stag),
    /// A queue pair.
    Qp(u32),
    /// A completion queue.
    Cq(u32),
    /// What a task is about: the task itself knows it.
    Task,
}
