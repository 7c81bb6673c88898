//! The error type: one sentence with the numbers, its kind, and the party at fault.
//! The error of a failed operation has its status and the first cause recorded by its queue pair. Errors of inner crates are in
//! [`AdapterError`], which shows none of their types: programs decide by kind.

use core::fmt;

#[cfg(feature = "handover")]
use crate::handover::error::HandoverError;

use verbena_events::eqe::CHANNELS;
use verbena_mem::{Access, Refusal};
use verbena_nic::profile::ProfileError;
use verbena_nic::qp::{PostError, PostRecvError, PostSendError};
use verbena_nic::{Cause, Kind, Status};

/// The party at fault.
///
/// ```
/// use verbena::{Device, Fault};
/// let device = Device::open()?;
/// let error = device.buffer(8)?.set_len(9).unwrap_err();
/// assert_eq!(error.fault(), Fault::Caller);
/// # Ok::<(), verbena::Error>(())
/// ```
// Complete: every error has one of these, so that a match needs no other arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller: the request makes no sense.
    Caller,
    /// The peer: it rejected, violated the protocol, or is gone.
    Peer,
    /// A limit was reached; the call may succeed later.
    Limit,
    /// The operating system or the adapter.
    System,
}

/// What kind of error it is, for programs that react to some of them.
///
/// ```
/// use verbena::{Access, Device, ErrorKind};
/// let device = Device::open()?;
/// let memory = device.memory(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// let kind = |result: Result<_, verbena::Error>| result.map_err(|error| error.kind());
///
/// assert_eq!(kind(memory.write_at(60, b"too long")), Err(ErrorKind::OutOfBounds));
/// assert_eq!(kind(memory.store(4, 1)), Err(ErrorKind::Unaligned));
/// let refused = device.connect("127.0.0.1:1").wait().unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Unreachable);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument, option or setting is invalid, or the call does not suit the object.
    InvalidInput,
    /// A range outside of memory, or more bytes than fit.
    OutOfBounds,
    /// An address that must be a multiple of the word's size is not.
    Unaligned,
    /// The handle or the registration does not grant the access.
    AccessDenied,
    /// The state of the object does not allow it: not connected, in use, being moved.
    State,
    /// A limit was reached, or memory cannot be allocated; the call may succeed later.
    Limit,
    /// This adapter, system or build cannot do it.
    Unsupported,
    /// The name cannot be resolved, or the peer cannot be reached.
    Unreachable,
    /// The peer rejected the connection; see [`Error::rejection`].
    Rejected,
    /// The peer did not answer in time.
    TimedOut,
    /// The connection or the adapter was closed.
    Closed,
    /// The peer did not authenticate, or TLS failed.
    Authentication,
    /// The peer, or another process, sent something that is not valid.
    InvalidData,
    /// An operation failed; see [`Error::status`].
    Failed,
    /// A system call failed; see [`Error::os_error`].
    System,
}

/// An error of the adapter below this crate: its sentence, and as [source](core::error::Error::source) the failed system call if there was one.
///
/// ```
/// use std::error::Error as _;
/// use verbena::{Device, Error};
/// let device = Device::open()?;
/// let Err(Error::Adapter(error)) = device.connect("127.0.0.1:1").wait() else { unreachable!() };
/// assert!(error.to_string().starts_with("cannot reach 127.0.0.1:1"));
/// assert!(error.source().is_some(), "of the system call");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct AdapterError(verbena_engine::Error);

impl AdapterError {
    fn system_call(&self) -> Option<&verbena_engine::sys::Error> {
        use verbena_engine::Error as E;
        match &self.0 {
            E::System(cause) | E::Unreachable { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// The error number of a fault that a test has set.
    fn injected(&self) -> Option<i32> {
        use verbena_engine::Error as E;
        match &self.0 {
            E::Injected { errno } | E::Adapter(verbena_nic::Error::Injected(errno)) => Some(*errno),
            _ => None,
        }
    }

    /// Memory was registered or used wrongly.
    pub(crate) fn misuse(&self) -> Option<&verbena_mem::Misuse> {
        match &self.0 {
            verbena_engine::Error::Adapter(verbena_nic::Error::Memory(misuse)) => Some(misuse),
            _ => None,
        }
    }

    fn kind(&self) -> ErrorKind {
        use verbena_engine::Error as E;
        use verbena_mem::Misuse;
        use verbena_nic::Error as N;
        match &self.0 {
            E::System(_) | E::Port(_) | E::Injected { .. } | E::Adapter(N::Injected(_)) => {
                ErrorKind::System
            }
            E::Adapter(N::InUse { .. } | N::Memory(Misuse::Busy { .. })) => ErrorKind::State,
            E::Adapter(error) => match error.kind() {
                Kind::Exhausted => ErrorKind::Limit,
                Kind::Misuse => ErrorKind::InvalidInput,
            },
            E::TooManyHandlers { .. } | E::NoRoom { .. } => ErrorKind::Limit,
            E::Unreachable { .. } => ErrorKind::Unreachable,
            E::Rejected { .. } | E::CmRejected { .. } => ErrorKind::Rejected,
            E::Timeout { .. } => ErrorKind::TimedOut,
            E::Unauthenticated { .. } | E::Tls { .. } => ErrorKind::Authentication,
            E::Startup { .. } | E::CmRefused { .. } | E::Image(_) | E::Descriptors { .. } => {
                ErrorKind::InvalidData
            }
            E::NotConnectable { .. }
            | E::Transition { .. }
            | E::NotConnected { .. }
            | E::NumberMoved { .. }
            | E::NumberInUse { .. }
            | E::SendsOutstanding { .. } => ErrorKind::State,
            E::NoDatagrams | E::RocePortInUse { .. } | E::Virtual { .. } => ErrorKind::Unsupported,
            E::Failed(_) | E::Closed => ErrorKind::Closed,
            E::PrivateData { .. }
            | E::NoDevice
            | E::NotLocalAddress { .. }
            | E::KeyFile(_)
            | E::OwnedByOther(_)
            | E::NotMulticast { .. }
            | E::NoOobNumber { .. }
            | E::NoHandler { .. }
            | E::NoProcessor { .. }
            | E::NoProcessors
            | E::Foreign
            | E::ReceiveQueueMismatch { .. }
            | E::Options(_)
            | E::Interrupts(_) => ErrorKind::InvalidInput,
        }
    }

    fn fault(&self) -> Fault {
        use verbena_engine::Error as E;
        match &self.0 {
            E::System(_) | E::Port(_) | E::RocePortInUse { .. } => Fault::System,
            E::TooManyHandlers { .. } => Fault::Limit,
            E::Injected { .. } | E::Failed(_) => Fault::System,
            E::Adapter(error) => match error.kind() {
                Kind::Exhausted => Fault::Limit,
                Kind::Misuse => Fault::Caller,
            },
            E::Unreachable { .. }
            | E::Startup { .. }
            | E::Rejected { .. }
            | E::CmRejected { .. }
            | E::CmRefused { .. }
            | E::Timeout { .. }
            | E::Unauthenticated { .. }
            | E::Tls { .. } => Fault::Peer,
            E::NotConnectable { .. }
            | E::Transition { .. }
            | E::NotConnected { .. }
            | E::PrivateData { .. }
            | E::NoDevice
            | E::NotLocalAddress { .. }
            | E::KeyFile(_)
            | E::NoDatagrams
            | E::OwnedByOther(_)
            | E::NotMulticast { .. }
            | E::NoOobNumber { .. }
            | E::NumberMoved { .. }
            | E::NumberInUse { .. }
            | E::SendsOutstanding { .. }
            | E::NoHandler { .. }
            | E::NoProcessor { .. }
            | E::NoProcessors
            | E::Foreign
            | E::NoRoom { .. }
            | E::ReceiveQueueMismatch { .. }
            | E::Image(_)
            | E::Descriptors { .. }
            | E::Virtual { .. }
            | E::Options(_)
            | E::Interrupts(_)
            | E::Closed => Fault::Caller,
        }
    }
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for AdapterError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        let system = self.system_call();
        system.map(|error| error as &(dyn core::error::Error + 'static))
    }
}

/// An operation that was posted and failed.
///
/// ```
/// use verbena::{Failure, Status};
/// let failure = Failure { qp: 7, status: Status::RemAccessErr, cause: None };
/// assert_eq!(failure.to_string(), "RemAccessErr on queue pair 7");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The queue pair.
    pub qp: u32,
    /// The completion status of the verbs (docs/connections.md).
    pub status: Status,
    /// The first cause recorded by the queue pair, as one sentence.
    pub cause: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on queue pair {}", self.status, self.qp)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// Why a call or an operation failed.
///
/// ```
/// use verbena::{Device, Error};
/// let device = Device::open()?;
/// match device.connect("127.0.0.1:1").wait() {
///     Err(error) => println!("{error}"), // cannot reach 127.0.0.1:1: ...
///     Ok(_) => unreachable!("no listener there"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter, the system or the startup of a connection.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The configuration.
    #[error("configuration: {0}")]
    Config(verbena_engine::config::ConfigErrors),
    /// The logical device does not exist, lacks the service, or the service is not implemented yet.
    #[error(transparent)]
    Profile(Box<ProfileError>),
    /// The queue pair did not accept a request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An operation failed.
    #[error("{0}")]
    Failed(Failure),
    /// The connection was closed before the operation was done.
    #[error("the connection was closed by {}", if *.by_peer { "the peer" } else { "this side" })]
    Closed {
        /// Closed by the peer, not by this side.
        by_peer: bool,
    },
    /// A range outside of the memory.
    #[error("{len} bytes at offset {offset} exceed memory of {limit} bytes")]
    OutOfBounds {
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Length of the memory in bytes.
        limit: u64,
    },
    /// More bytes than fit.
    #[error("{len} bytes, at most {limit} fit")]
    TooLong {
        /// Bytes.
        len: u64,
        /// Bytes that fit.
        limit: u64,
    },
    /// The handle does not grant this access; detected before anything was sent.
    #[error("the handle grants {has}, not {needs}")]
    MissingAccess {
        /// Rights granted.
        has: Access,
        /// Rights needed.
        needs: Access,
    },
    /// The address of a word is not aligned.
    #[error("{at:#x} is not a multiple of {align}")]
    Unaligned {
        /// The address.
        at: u64,
        /// The alignment.
        align: u64,
    },
    /// The bytes do not encode a handle of remote memory.
    #[error("{got} bytes are no handle of remote memory: {why}")]
    InvalidHandle {
        /// Number of bytes.
        got: usize,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The text does not name a queue pair.
    #[error("`{text}` is not a queue pair endpoint: {why}")]
    InvalidQpEndpoint {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The object belongs to another device or protection domain.
    #[error("the object belongs to another device or protection domain")]
    Foreign,
    /// The queue pair is in use by a listener that is about to connect it.
    #[error("the queue pair is being connected and cannot be moved before that ends")]
    QpInUse,
    /// A handover of a service failed (V1).
    #[cfg(feature = "handover")]
    #[error("handover: {0}")]
    Handover(Box<HandoverError>),
    /// Only the adapter itself can raise this event.
    #[error("{cause:?} is raised by the adapter only and cannot be injected")]
    EventNotInjectable {
        /// The event.
        cause: Cause,
    },
    /// Channel events have no channel of this number (E7).
    #[error("channel {number} does not exist; there are {CHANNELS}")]
    Channel {
        /// The number.
        number: u8,
    },
    /// SCTP was chosen as the transport of a queue pair.
    #[error(
        "SCTP is not available: the kernels that Verbena is tested on have none (CONFIG_IP_SCTP), and no implementation over UDP has peers outside of \
         WebRTC; TCP is"
    )]
    Sctp,
    /// An access to registered memory is not allowed, as [`Pd::prefetch`](crate::low::Pd::prefetch) checks it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Memory cannot be registered on demand, because an access to a page that is not mapped would end the process: the setting
    /// `catch_faults` is off, or the processor is not supported.
    #[error("faults are not caught here (setting `catch_faults`), which memory on demand needs")]
    FaultsNotCaught,
    /// Out of memory.
    #[error("{len} bytes cannot be allocated")]
    Allocation {
        /// Bytes asked for.
        len: usize,
    },
    /// The name cannot be resolved.
    #[error("{name} cannot be resolved: {why}")]
    Address {
        /// The name.
        name: String,
        /// The message of the operating system.
        why: String,
    },
    /// The caller's time limit passed.
    #[error("timed out")]
    Timeout,
}

// Conversions from inner crates are for this workspace and no part of the interface.
#[doc(hidden)]
impl From<verbena_engine::Error> for Error {
    fn from(error: verbena_engine::Error) -> Error {
        match error {
            verbena_engine::Error::Foreign => Error::Foreign,
            error => Error::Adapter(AdapterError(error)),
        }
    }
}

#[doc(hidden)]
impl From<verbena_nic::Error> for Error {
    fn from(error: verbena_nic::Error) -> Error {
        verbena_engine::Error::from(error).into()
    }
}

impl From<PostSendError> for Error {
    fn from(error: PostSendError) -> Error {
        Error::Post(error.source)
    }
}

impl From<PostRecvError> for Error {
    fn from(error: PostRecvError) -> Error {
        Error::Post(error.source)
    }
}

#[cfg(feature = "handover")]
impl From<HandoverError> for Error {
    fn from(error: HandoverError) -> Error {
        Error::Handover(Box::new(error))
    }
}

#[doc(hidden)]
impl From<verbena_engine::sys::Error> for Error {
    fn from(error: verbena_engine::sys::Error) -> Error {
        verbena_engine::Error::from(error).into()
    }
}

impl Error {
    /// What kind of error it is.
    ///
    /// ```
    /// use verbena::{Error, ErrorKind};
    /// assert_eq!(Error::Closed { by_peer: true }.kind(), ErrorKind::Closed);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Adapter(error) => error.kind(),
            Error::Post(PostError::Full(_)) | Error::Allocation { .. } => ErrorKind::Limit,
            Error::Post(PostError::State(_)) | Error::QpInUse => ErrorKind::State,
            Error::OutOfBounds { .. } | Error::TooLong { .. } => ErrorKind::OutOfBounds,
            Error::Unaligned { .. } => ErrorKind::Unaligned,
            Error::MissingAccess { .. } | Error::Refused(_) => ErrorKind::AccessDenied,
            Error::Sctp | Error::FaultsNotCaught => ErrorKind::Unsupported,
            Error::Address { .. } => ErrorKind::Unreachable,
            Error::Timeout => ErrorKind::TimedOut,
            Error::Closed { .. } => ErrorKind::Closed,
            Error::Failed(_) => ErrorKind::Failed,
            Error::InvalidHandle { .. } | Error::InvalidQpEndpoint { .. } => ErrorKind::InvalidData,
            #[cfg(feature = "handover")]
            Error::Handover(error) => handover_kind(error),
            Error::Config(_)
            | Error::Profile(_)
            | Error::Post(_)
            | Error::Foreign
            | Error::EventNotInjectable { .. }
            | Error::Channel { .. } => ErrorKind::InvalidInput,
        }
    }

    /// The party at fault.
    ///
    /// ```
    /// use verbena::{Error, Fault};
    /// assert_eq!(Error::Closed { by_peer: true }.fault(), Fault::Peer);
    /// ```
    pub fn fault(&self) -> Fault {
        match self {
            Error::Adapter(error) => error.fault(),
            Error::Post(PostError::Full(_)) | Error::Allocation { .. } => Fault::Limit,
            Error::Failed(failure) => failure.fault(),
            Error::Closed { by_peer: true } | Error::Timeout => Fault::Peer,
            Error::InvalidHandle { .. } | Error::InvalidQpEndpoint { .. } => Fault::Peer,
            Error::Config(_)
            | Error::Profile(_)
            | Error::Post(_)
            | Error::Closed { .. }
            | Error::OutOfBounds { .. }
            | Error::TooLong { .. }
            | Error::MissingAccess { .. }
            | Error::Unaligned { .. }
            | Error::Foreign
            | Error::QpInUse
            | Error::EventNotInjectable { .. }
            | Error::Channel { .. }
            | Error::Sctp
            | Error::Refused(_)
            | Error::FaultsNotCaught
            | Error::Address { .. } => Fault::Caller,
            #[cfg(feature = "handover")]
            Error::Handover(_) => Fault::Caller,
        }
    }

    /// The error number of the operating system, if a system call failed.
    ///
    /// ```
    /// let taken = verbena::Device::open()?.listen("192.0.2.1:1").unwrap_err();
    /// println!("error number {:?}", taken.os_error());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn os_error(&self) -> Option<i32> {
        use verbena_mem::{Misuse, SharedMemoryError};
        let error = match self {
            Error::Adapter(error) => error,
            Error::Post(PostError::Injected(errno)) => return Some(*errno),
            _ => return None,
        };
        if let Some(call) = error.system_call() {
            return Some(call.code());
        }
        if let Some(errno) = error.injected() {
            return Some(errno);
        }
        match error.misuse() {
            Some(Misuse::SharedMemory(SharedMemoryError::System { errno, .. })) => Some(*errno),
            _ => None,
        }
    }

    /// The private data of the peer's rejection, if the peer rejected the connection.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local_addr()?);
    /// listener.next().wait()?.reject(b"not today");
    /// assert_eq!(connecting.wait().unwrap_err().rejection(), Some(&b"not today"[..]));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn rejection(&self) -> Option<&[u8]> {
        match self {
            Error::Adapter(AdapterError(verbena_engine::Error::Rejected {
                private_data, ..
            })) => Some(private_data),
            _ => None,
        }
    }

    /// The reason of the peer's connection manager for rejecting the connection, if there is one: a number of the InfiniBand specification
    /// (RoCEv2 only; 28, "consumer reject", is in [`rejection`](Error::rejection)).
    ///
    /// ```
    /// assert_eq!(verbena::Error::Timeout.reject_reason(), None);
    /// ```
    pub fn reject_reason(&self) -> Option<u16> {
        match self {
            Error::Adapter(AdapterError(verbena_engine::Error::CmRejected { reason, .. })) => {
                Some(reason.0)
            }
            _ => None,
        }
    }

    /// Whether the setting `tls` is the cause: the TLS handshake failed, or datagrams were requested, which cannot be encrypted.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_tls());
    /// ```
    pub fn is_tls(&self) -> bool {
        use verbena_engine::Error as E;
        matches!(
            self,
            Error::Adapter(AdapterError(E::Tls { .. } | E::NoDatagrams))
        )
    }

    /// Whether the object to be freed is still in use, for example a region with windows bound to it.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_busy());
    /// ```
    pub fn is_busy(&self) -> bool {
        use verbena_engine::Error as E;
        use verbena_mem::Misuse;
        use verbena_nic::Error as N;
        let Error::Adapter(AdapterError(E::Adapter(error))) = self else {
            return false;
        };
        matches!(error, N::InUse { .. } | N::Memory(Misuse::Busy { .. }))
    }

    /// Whether memory to be registered is not mapped, or not with the protection that its access rights need.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_unmapped());
    /// ```
    pub fn is_unmapped(&self) -> bool {
        use verbena_mem::Misuse;
        let Error::Adapter(error) = self else {
            return false;
        };
        matches!(error.misuse(), Some(Misuse::Unmapped { .. }))
    }

    /// The status of a failed operation.
    ///
    /// ```
    /// use verbena::{Error, Failure, Status};
    /// let failure = Failure { qp: 7, status: Status::RetryExcErr, cause: None };
    /// assert_eq!(Error::Failed(failure).status(), Some(Status::RetryExcErr));
    /// ```
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Failed(failure) => Some(failure.status),
            _ => None,
        }
    }

    /// Whether the connection has ended: later operations on it fail.
    ///
    /// ```
    /// assert!(verbena::Error::Closed { by_peer: true }.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. } | Error::Failed(_))
    }
}

#[cfg(feature = "handover")]
fn handover_kind(error: &HandoverError) -> ErrorKind {
    match error {
        HandoverError::Channel(_) | HandoverError::SharedWord(_) => ErrorKind::System,
        HandoverError::VersionMismatch { .. } => ErrorKind::Unsupported,
        HandoverError::Refused(_) | HandoverError::Withdrawn => ErrorKind::Rejected,
        HandoverError::InvalidMessage(_) => ErrorKind::InvalidData,
        HandoverError::NotFound { .. }
        | HandoverError::NotUnpacked { .. }
        | HandoverError::WindowMemory { .. }
        | HandoverError::WindowQp { .. }
        | HandoverError::UnpackFirst { .. } => ErrorKind::InvalidInput,
    }
}

impl Failure {
    fn fault(&self) -> Fault {
        match self.status {
            Status::LocLenErr
            | Status::LocQpOpErr
            | Status::LocProtErr
            | Status::LocAccessErr
            | Status::MwBindErr
            // The peer found the request invalid or did not grant the access.
            | Status::RemInvReqErr
            | Status::RemAccessErr => Fault::Caller,
            Status::BadRespErr
            | Status::RemOpErr
            | Status::RetryExcErr
            | Status::RnrRetryExcErr
            | Status::RemAbortErr
            | Status::WrFlushErr => Fault::Peer,
            Status::Success | Status::FatalErr | Status::GeneralErr => Fault::System,
        }
    }
}
