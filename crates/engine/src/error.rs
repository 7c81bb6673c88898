//! Why the engine cannot do what it was asked.
//! Each error says whose fault it is and carries the numbers; nothing has changed where one is returned.
//! It refuses to be about work that was posted: that ends in completions.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use verbena_nic::interrupts;
use verbena_nic::moderation::BadHold;
use verbena_nic::vector::VectorError;
use verbena_stream::startup::Failure;

use crate::config::Problems;
use crate::failing::EngineFailure;
pub use crate::keys::KeyFileError;
use crate::sys;
pub use crate::tls::TlsError;

/// Why the notification pipeline refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InterruptError {
    /// It cannot be made so.
    #[error(transparent)]
    New(#[from] interrupts::NewError),
    /// A command was refused.
    #[error(transparent)]
    Command(#[from] interrupts::CommandError),
    /// An event was not raised.
    #[error(transparent)]
    Raise(#[from] interrupts::RaiseError),
    /// Moderation would hold signals back for too long, or for nothing.
    #[error(transparent)]
    Hold(#[from] BadHold),
    /// A vector does not exist.
    #[error(transparent)]
    Vector(#[from] VectorError),
}

/// Packets that a rule of the profile gives to another device or service (V2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("packets for {at} belong to {owner}, not to {device} (setting `owners`)")]
pub struct Owned {
    /// Where they go.
    pub at: SocketAddr,
    /// Whose they are.
    pub owner: String,
    /// Who asked for them.
    pub device: String,
}

/// Why the engine cannot do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("the system refused: {0}")]
    System(#[from] sys::Error),
    /// The adapter refused.
    #[error(transparent)]
    Adapter(#[from] verbena_nic::Error),
    /// Nobody listens there, or nobody can be reached.
    #[error("cannot reach {peer}: {cause}")]
    Unreachable {
        /// Whom.
        peer: SocketAddr,
        /// Why.
        cause: sys::Error,
    },
    /// The startup failed.
    #[error("startup with {peer}: {cause}")]
    Startup {
        /// With whom.
        peer: SocketAddr,
        /// Why.
        cause: Failure,
    },
    /// The peer said no.
    #[error("{peer} said no")]
    Rejected {
        /// Who.
        peer: SocketAddr,
        /// What it said with it.
        private_data: Vec<u8>,
    },
    /// It took too long.
    #[error("not connected to {peer} within {limit:?}")]
    Timeout {
        /// To whom.
        peer: SocketAddr,
        /// The time it had.
        limit: Duration,
    },
    /// The queue pair cannot take a connection now.
    #[error("queue pair {qp} is {state:?} and cannot be connected")]
    NotConnectable {
        /// The queue pair.
        qp: u32,
        /// Where it stands.
        state: verbena_nic::QpState,
    },
    /// The private data does not fit a startup frame.
    #[error("{got} bytes of private data, at most {limit}")]
    PrivateData {
        /// Bytes given.
        got: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// No address of this host is the one that the settings name.
    #[error("no address of this host matches the setting `device`")]
    NoDevice,
    /// The adapter does not have this address.
    #[error("{address} is no address of this adapter (setting `device`)")]
    NotOurs {
        /// The address.
        address: IpAddr,
    },
    /// Packets for an address are another's (V2).
    #[error(transparent)]
    Owned(Box<Owned>),
    /// A queue pair can be attached to multicast groups only.
    #[error("{address} is no multicast address")]
    NotMulticast {
        /// The address.
        address: IpAddr,
    },
    /// The peer that answered does not know the shared key, or is none of ours.
    #[error("{peer} cannot prove that it is the peer that was called (setting `key`)")]
    Unproven {
        /// Who.
        peer: SocketAddr,
    },
    /// There is no TLS with the peer, or TLS where none is wanted (setting `tls`).
    #[error("TLS with {peer}: {cause}")]
    Tls {
        /// With whom.
        peer: SocketAddr,
        /// Why.
        cause: TlsError,
    },
    /// Datagrams would not be encrypted.
    #[error("datagrams cannot be encrypted, and the setting `tls` demands it of this adapter")]
    NoDatagrams,
    /// The keys of a file cannot be used.
    #[error(transparent)]
    KeyFile(#[from] Box<KeyFileError>),
    /// The queue pair was not made to be called.
    #[error("queue pair {qp} has no number that peers can call")]
    NotCallable {
        /// The queue pair.
        qp: u32,
    },
    /// As many completion handlers as there can be.
    #[error("all {limit} completion handlers are registered")]
    TooManyHandlers {
        /// How many there can be.
        limit: u16,
    },
    /// No completion handler has this id.
    #[error("completion handler {id} is not registered; there can be {limit}")]
    NoHandler {
        /// The id.
        id: u16,
        /// How many there can be.
        limit: u16,
    },
    /// This program may not use this processor.
    #[error("processor {processor} does not exist, or this program may not use it")]
    NoProcessor {
        /// Its number.
        processor: u16,
    },
    /// A handler needs a processor.
    #[error("a completion handler runs on one processor at least")]
    NoProcessors,
    /// Something of another function, or of another adapter (V1).
    #[error("it belongs to another function or adapter")]
    Foreign,
    /// Virtual functions are made by the physical one only (V1).
    #[error("function {function} is a virtual one and cannot make others")]
    Virtual {
        /// The function that was asked.
        function: u32,
    },
    /// Completions that wait do not fit the queue where their connection goes (V1).
    #[error("{needed} completions wait, and completion queue {cq} has room for {free}")]
    NoRoom {
        /// The queue.
        cq: u32,
        /// Completions that wait.
        needed: usize,
        /// How many fit.
        free: usize,
    },
    /// A connection with a shared receive queue goes to one, and one without to none (V1).
    #[error("its receives come from {}", if *.shared { "a shared queue, and none is named" } else { "its own queue, and a shared one is named" })]
    Receives {
        /// They came from a shared queue.
        shared: bool,
    },
    /// What another process sent is no connection of this form (V1).
    #[error("the other process sent {0}")]
    Image(verbena_nic::ImageError),
    /// Another process sent more or fewer descriptors than it said (V1).
    #[error("a connection came with {got} descriptors, {expected} were announced")]
    Descriptors {
        /// How many came.
        got: usize,
        /// How many were announced.
        expected: usize,
    },
    /// A function cannot be so.
    #[error("function: {0}")]
    Options(Problems),
    /// The notification pipeline refuses.
    #[error("notification: {0}")]
    Interrupts(Box<InterruptError>),
    /// The engine failed: one of its threads panicked.
    #[error("the adapter failed: {0}")]
    Failed(Box<EngineFailure>),
    /// The engine was closed, or its process was forked and this is the child.
    #[error("the adapter is closed")]
    Closed,
}

impl From<InterruptError> for Error {
    fn from(error: InterruptError) -> Error {
        Error::Interrupts(Box::new(error))
    }
}
