//! Why a verb fails: one error for every object of a function, which says whose fault it is (N9).
//! When a verb fails nothing has changed, and the error carries the numbers that did not fit. errno is not known here: the C API
//! translates.

use verbena_events::interrupts;
use verbena_mem::Pd;

use crate::control::error::ControlError;
use crate::cq::CqError;
use crate::function::shares::Shares;
use crate::object::Object;
use crate::profile::services::{Service, Services};
use crate::qp::{MigrateRefusal, PostError};
use crate::receive;
use crate::state::TransitionError;

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is invalid.
    Misuse,
    /// The request is valid, but a limit is reached.
    Exhausted,
}

/// A verb failed. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No object of this function has the number.
    #[error("no {object} has number {number}")]
    NoSuch {
        /// What was named.
        object: Object,
        /// The number.
        number: u32,
    },
    /// Its number is reserved: a control queue pair will create it (V5).
    #[error("{object} {number} is pending: its creation is not done")]
    Pending {
        /// What was named.
        object: Object,
        /// The number.
        number: u32,
    },
    /// It cannot be destroyed while other objects use it.
    #[error("{object} {number} is in use by {users} others")]
    InUse {
        /// What was named.
        object: Object,
        /// The number.
        number: u32,
        /// How many objects use it.
        users: u32,
    },
    /// The function has reached its limit.
    #[error("all {limit} of kind {object} are in use")]
    Limit {
        /// What was asked for.
        object: Object,
        /// How many there may be.
        limit: u32,
    },
    /// The adapter does not have so many left for a function (V1).
    #[error("{requested} of kind {object} requested, {available} contiguous ones left")]
    Share {
        /// What was asked for.
        object: Object,
        /// How many.
        requested: u32,
        /// The longest run of numbers that no function has.
        available: u32,
    },
    /// A function cannot be removed while it has objects (V1).
    #[error("function {number} still has {used}, and {controls} control queue pairs")]
    Occupied {
        /// The function.
        number: u32,
        /// What it has.
        used: Shares,
        /// Control queue pairs, which count for themselves.
        controls: u32,
    },
    /// The physical function cannot be removed from its adapter.
    #[error("function 0 is the physical one and cannot be removed")]
    Physical,
    /// The function was removed, and nothing can be created in it any more.
    #[error("the function was removed: no {object} can be created in it")]
    FunctionRemoved {
        /// What was to be created.
        object: Object,
    },
    /// Larger than the function's attributes allow.
    #[error("{what}: {requested} asked for, at most {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How much was asked for.
        requested: usize,
        /// How much is allowed.
        limit: usize,
    },
    /// A queue pair and its shared receive queue must have the same protection domain.
    #[error("shared receive queue {srq} belongs to protection domain {}, not {}", owner.0, requester.0)]
    Domain {
        /// The queue.
        srq: u32,
        /// Its domain.
        owner: Pd,
        /// The queue pair's.
        requester: Pd,
    },
    /// A channel and its shared send queue must have the same protection domain (V6).
    #[error("shared send queue {ssq} belongs to protection domain {}, not {}", owner.0, requester.0)]
    ChannelDomain {
        /// The queue.
        ssq: u32,
        /// Its domain.
        owner: Pd,
        /// The queue pair's.
        requester: Pd,
    },
    /// A channel must be reliable (V6).
    #[error("a channel of shared send queue {ssq} must be reliable")]
    Unreliable {
        /// The queue.
        ssq: u32,
    },
    /// The parts do not fit an XRC queue pair, or its shared receive queue.
    #[error("{0}")]
    Xrc(&'static str),
    /// The queue pair is not a channel of the shared send queue (V6).
    #[error("queue pair {channel} is no channel of shared send queue {ssq}")]
    NoChannel {
        /// The queue.
        ssq: u32,
        /// The queue pair.
        channel: u32,
    },
    /// The function belongs to a logical device without this service (V2).
    #[error(
        "function {number} has no queue pairs for {service}: its device provides {services} (setting `presents`)"
    )]
    Service {
        /// The function.
        number: u32,
        /// What was asked for.
        service: Service,
        /// The services it has.
        services: Services,
    },
    /// The state does not allow the change.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// The connection cannot be moved (V1).
    #[error("queue pair {number} cannot be moved: {why}")]
    NotMigratable {
        /// The queue pair.
        number: u32,
        /// Why.
        why: MigrateRefusal,
    },
    /// Error of a completion queue.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// A receive cannot be posted to a shared queue.
    #[error(transparent)]
    Receive(#[from] receive::PostError),
    /// A request cannot be posted to a queue pair.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Event queues and vectors cannot be arranged so.
    #[error(transparent)]
    Interrupts(#[from] interrupts::NewError),
    /// Error of a control queue pair.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Error of the memory tables.
    #[error(transparent)]
    Memory(#[from] verbena_mem::Misuse),
    /// A fault for tests: the error number that the program is to get.
    #[error("errno {0} (injected by verbena faults)")]
    Injected(i32),
}

impl Error {
    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Limit { .. }
            | Error::Injected(_)
            | Error::Share { .. }
            | Error::Receive(receive::PostError::Full(_))
            | Error::Post(PostError::Full(_))
            | Error::Control(ControlError::Full(_))
            | Error::Memory(verbena_mem::Misuse::Full(_) | verbena_mem::Misuse::PagesExhausted { .. })
            // Shared memory, descriptors and mappings are limits of the system.
            | Error::Memory(verbena_mem::Misuse::SharedMemory(verbena_mem::SharedMemoryError::System { .. })) => {
                Kind::Exhausted
            }
            Error::NoSuch { .. }
            | Error::Pending { .. }
            | Error::Control(_)
            | Error::InUse { .. }
            | Error::Occupied { .. }
            | Error::Physical
            | Error::FunctionRemoved { .. }
            | Error::Interrupts(_)
            | Error::TooLarge { .. }
            | Error::Domain { .. }
            | Error::ChannelDomain { .. }
            | Error::Unreliable { .. }
            | Error::NoChannel { .. }
            | Error::Xrc(_)
            | Error::Service { .. }
            | Error::Transition(_)
            | Error::NotMigratable { .. }
            | Error::Cq(_)
            | Error::Receive(_)
            | Error::Post(_)
            | Error::Memory(_) => Kind::Misuse,
        }
    }
}
