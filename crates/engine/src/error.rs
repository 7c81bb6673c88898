//! Errors of the engine's calls.
//! Each one says whose fault it is, with the numbers; a call that returns one has changed nothing. Errors of posted work are
//! reported in completions instead.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use verbena_events::interrupts;
use verbena_events::moderation::{BadHold, MAX_DELAY};
use verbena_events::vector::VectorError;
use verbena_nic::QpState;
use verbena_nic::state::QpEvent;
use verbena_stream::startup::Failure;
use verbena_wire::roce::cm::RejReason;

use crate::config::ConfigErrors;
pub use crate::security::keys::KeyFileError;
pub use crate::security::tls::TlsError;
use crate::sys;

/// Errors of the notification pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InterruptError {
    /// It cannot be created with these parameters.
    #[error(transparent)]
    New(#[from] interrupts::NewError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] interrupts::CommandError),
    /// An event was not raised.
    #[error(transparent)]
    Raise(#[from] interrupts::RaiseError),
    /// The moderation interval is too long or has no effect.
    #[error(transparent)]
    Hold(#[from] BadHold),
    /// A vector does not exist.
    #[error(transparent)]
    Vector(#[from] VectorError),
    /// An entry of the redirection table names a handler that cannot exist.
    #[error("the redirection table names completion handler {handler}; there can be {limit}")]
    TableHandler {
        /// The handler.
        handler: u16,
        /// The maximum number of handlers.
        limit: u16,
    },
    /// The interval of lazy polls is zero or too long.
    #[error("an event queue can be polled at intervals of up to {MAX_DELAY:?}, not {interval:?}")]
    PollInterval {
        /// The interval.
        interval: Duration,
    },
}

/// A rule of the profile gives these packets to another device or service (V2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("packets for {at} belong to {owner}, not to {device} (setting `owners`)")]
pub struct OwnedByOther {
    /// Their local address.
    pub at: SocketAddr,
    /// Their owner.
    pub owner: String,
    /// The device that requested them.
    pub device: String,
}

/// Why the port of the setting `port` could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortError {
    /// The TAP interface cannot be used.
    #[error(transparent)]
    Tap(Arc<verbena_lan::Error>),
    /// No switch has the socket.
    #[error(
        "no switch answers at {}: {cause}; start one with `verbena switch --control CONTROL --cable {}`",
        path.display(), path.display()
    )]
    Cable {
        /// The socket.
        path: PathBuf,
        /// The cause.
        cause: sys::Error,
    },
}

/// Why a call of the engine failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] sys::Error),
    /// The port of its own cannot be opened.
    #[error("the port of the setting `port`: {0}")]
    Port(PortError),
    /// An error of the adapter.
    #[error(transparent)]
    Adapter(#[from] verbena_nic::Error),
    /// The peer does not listen, or cannot be reached.
    #[error("cannot reach {peer}: {cause}")]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// The cause.
        cause: sys::Error,
    },
    /// The startup failed.
    #[error("startup with {peer} failed: {cause}")]
    Startup {
        /// The peer.
        peer: SocketAddr,
        /// The cause.
        cause: Failure,
    },
    /// The peer rejected the request.
    #[error("{peer} rejected the connection")]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Its private data.
        private_data: Vec<u8>,
    },
    /// The peer's connection manager rejected the request (RoCEv2).
    #[error("{peer} rejected the connection: {reason}")]
    CmRejected {
        /// The peer.
        peer: SocketAddr,
        /// Its reason.
        reason: RejReason,
    },
    /// The request of a peer does not suit the queue pair or the path, and was rejected (RoCEv2).
    #[error("the request of {peer} was rejected: {reason}")]
    CmRefused {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        reason: RejReason,
    },
    /// The time limit has passed.
    #[error("not connected to {peer} within {limit:?}")]
    Timeout {
        /// The peer.
        peer: SocketAddr,
        /// The limit.
        limit: Duration,
    },
    /// The queue pair cannot be connected in its state.
    #[error("queue pair {qp} is {state:?} and cannot be connected")]
    NotConnectable {
        /// The queue pair.
        qp: u32,
        /// Its state.
        state: QpState,
    },
    /// The queue pair cannot change from its state to the requested one.
    #[error("queue pair {qp} is {from:?} and cannot become {to:?}: it can become {}", names(.allowed))]
    Transition {
        /// The queue pair.
        qp: u32,
        /// Its state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The states that can be requested.
        allowed: Vec<QpState>,
    },
    /// The queue pair has no connection.
    #[error("queue pair {qp} is {state:?} and has no connection")]
    NotConnected {
        /// The queue pair.
        qp: u32,
        /// Its state.
        state: QpState,
    },
    /// The private data does not fit a startup frame.
    #[error("{got} bytes of private data, at most {limit}")]
    PrivateData {
        /// Bytes given.
        got: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// No address of this host matches the setting `device`.
    #[error("no address of this host matches the setting `device`")]
    NoDevice,
    /// The adapter does not have this address.
    #[error("{address} is no address of this adapter (setting `device`)")]
    NotLocalAddress {
        /// The address.
        address: IpAddr,
    },
    /// A rule gives packets for this address to another device (V2).
    #[error(transparent)]
    OwnedByOther(Box<OwnedByOther>),
    /// Only multicast groups can be joined.
    #[error("{address} is no multicast address")]
    NotMulticast {
        /// The address.
        address: IpAddr,
    },
    /// The peer that answered does not have the shared key, or does not use the extensions.
    #[error("{peer} did not authenticate as the dialled peer (setting `key`)")]
    Unauthenticated {
        /// The peer.
        peer: SocketAddr,
    },
    /// TLS failed, or the peer uses TLS where it is off (setting `tls`).
    #[error("TLS with {peer}: {cause}")]
    Tls {
        /// The peer.
        peer: SocketAddr,
        /// The cause.
        cause: TlsError,
    },
    /// Datagrams cannot be encrypted.
    #[error("datagrams cannot be encrypted, and the setting `tls` demands it of this adapter")]
    NoDatagrams,
    /// UDP port 4791 belongs to another program.
    #[error(
        "UDP port 4791 at {address} is in use by another user's process or by the kernel (rxe): RoCEv2 cannot be used there, TCP can"
    )]
    RocePortInUse {
        /// The address.
        address: IpAddr,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    KeyFile(#[from] Box<KeyFileError>),
    /// The queue pair was not created for out-of-band connections.
    #[error("queue pair {qp} has no number that peers can connect to")]
    NoOobNumber {
        /// The queue pair.
        qp: u32,
    },
    /// The queue pair was migrated: its number stays in its completions, but no socket of this function receives calls to it (V1).
    #[error(
        "queue pair {qp} was migrated, and peers cannot connect to its number {number} any more: create a queue pair and exchange its number"
    )]
    NumberMoved {
        /// The queue pair.
        qp: u32,
        /// Its number for out-of-band connections.
        number: u32,
    },
    /// A queue pair cannot migrate here, because another one has its number (V1).
    #[error(
        "another queue pair of this function has number {number}: destroy that one first, or migrate to another function or process"
    )]
    NumberInUse {
        /// The number for out-of-band connections.
        number: u32,
    },
    /// The maximum number of completion handlers is registered.
    #[error("all {limit} completion handlers are registered")]
    TooManyHandlers {
        /// The maximum.
        limit: u16,
    },
    /// No completion handler has this id.
    #[error("completion handler {id} is not registered; there can be {limit}")]
    NoHandler {
        /// The id.
        id: u16,
        /// The maximum number of handlers.
        limit: u16,
    },
    /// The processor does not exist, or this program may not use it.
    #[error("processor {processor} does not exist, or this program may not use it")]
    NoProcessor {
        /// Its number.
        processor: u16,
    },
    /// The list of processors is empty.
    #[error("a completion handler runs on one processor at least")]
    NoProcessors,
    /// The object belongs to another function or adapter (V1).
    #[error("the object belongs to another function or adapter")]
    Foreign,
    /// Only the physical function can create virtual ones (V1).
    #[error("function {function} is a virtual one and cannot make others")]
    Virtual {
        /// The function that was called.
        function: u32,
    },
    /// The completions of a connection do not fit the completion queue to which it moves (V1).
    #[error("{needed} completions wait, and completion queue {cq} has room for {free}")]
    NoRoom {
        /// The queue.
        cq: u32,
        /// Completions to move.
        needed: usize,
        /// Free entries.
        free: usize,
    },
    /// A connection with a shared receive queue moves to one with, and one without to one without (V1).
    #[error("the connection receives from {}", if *.shared { "a shared receive queue, and none was given" } else { "its own receive queue, and a shared one was given" })]
    ReceiveQueueMismatch {
        /// It has a shared receive queue.
        shared: bool,
    },
    /// A shared send queue orders the requests that are posted to it, and has none of a connection that moves to it (V1, V6).
    #[error(
        "the connection has {requests} sends that have not completed or were not polled, and a shared send queue takes one without any: poll them first"
    )]
    SendsOutstanding {
        /// How many.
        requests: usize,
    },
    /// The data from the other process is not a valid image of a connection (V1).
    #[error("the other process sent {0}")]
    Image(verbena_nic::ImageError),
    /// The other process sent more or fewer descriptors than announced (V1).
    #[error("a connection came with {got} descriptors, {expected} were announced")]
    Descriptors {
        /// Descriptors received.
        got: usize,
        /// Descriptors announced.
        expected: usize,
    },
    /// The options of a function are invalid.
    #[error("function: {0}")]
    Options(ConfigErrors),
    /// An error of the notification pipeline.
    #[error("notification: {0}")]
    Interrupts(Box<InterruptError>),
    /// The engine failed: one of its threads panicked.
    #[error("the adapter failed: {0}")]
    Failed(Box<EngineFailure>),
    /// A fault for tests.
    #[error("errno {errno} (injected by verbena faults)")]
    Injected {
        /// The error number that the program is to get.
        errno: i32,
    },
    /// The engine was closed, or its process was forked and this is the child.
    #[error("the adapter is closed")]
    Closed,
}

impl Error {
    /// [`Error::Transition`] for a queue pair whose state changes by `next`.
    pub(crate) fn transition(
        qp: u32,
        from: QpState,
        to: QpState,
        next: impl Fn(QpEvent) -> Option<QpState>,
    ) -> Error {
        let mut allowed = QpState::ALL.to_vec();
        allowed.retain(|to| next(QpEvent::Modify(*to)).is_some());
        Error::Transition {
            qp,
            from,
            to,
            allowed,
        }
    }
}

/// The names of states, as a list in a sentence.
fn names(states: &[QpState]) -> String {
    let names: Vec<String> = states.iter().map(|state| format!("{state:?}")).collect();
    names.join(", ")
}

impl From<InterruptError> for Error {
    fn from(error: InterruptError) -> Error {
        Error::Interrupts(Box::new(error))
    }
}

/// Why an engine failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineFailure {
    /// One of its own threads panicked.
    #[error("thread {thread} panicked: {message}")]
    Panic {
        /// The thread's name.
        thread: String,
        /// The panic's message.
        message: String,
    },
    /// A thread cannot wait for its descriptors: most likely the program closed one that it did not open.
    #[error("thread {thread} cannot wait: {cause}")]
    Wait {
        /// The thread's name.
        thread: String,
        /// The error of the system call.
        cause: sys::Error,
    },
}
