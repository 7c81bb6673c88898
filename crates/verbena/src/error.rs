//! Why something did not work: one sentence with the numbers, and whose fault it is.
//! It promises that an error of a failed operation carries its status and the first cause that its connection knows.
//! It refuses to guess: what nobody can be blamed for is the system's.

use core::fmt;

use crate::handover::HandoverError;

use verbena_mem::Access;
use verbena_nic::profile::ProfileError;
use verbena_nic::qp::PostError;
use verbena_nic::{Cause, Kind, Status};

/// Whose fault it is.
///
/// ```
/// use verbena::{Device, Fault};
/// let device = Device::open()?;
/// let error = device.buffer(8)?.set_len(9).unwrap_err();
/// assert_eq!(error.fault(), Fault::Caller);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The program's: it asked for something that makes no sense.
    Caller,
    /// The peer's: it refused, broke a rule, or went away.
    Peer,
    /// Nobody's: something is used up, and may be free again later.
    Limit,
    /// The system's or the adapter's.
    System,
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
    /// How it ended, in the verbs' words (docs/connections.md).
    pub status: Status,
    /// The first cause that the queue pair knows, as one sentence.
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

/// Why something did not work.
///
/// ```
/// use verbena::{Device, Error};
/// let device = Device::open()?;
/// match device.connect("127.0.0.1:1").wait() {
///     Err(error) => println!("{error}"), // cannot reach 127.0.0.1:1: ...
///     Ok(_) => unreachable!("nobody listens there"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter, the system or the startup of a connection.
    #[error(transparent)]
    Engine(#[from] verbena_engine::Error),
    /// The configuration.
    #[error("configuration: {0}")]
    Config(verbena_engine::config::Problems),
    /// A logical device that is not so, or not there yet.
    #[error(transparent)]
    Profile(Box<ProfileError>),
    /// A request that the queue pair does not take.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An operation failed.
    #[error("{0}")]
    Failed(Failure),
    /// The connection was closed before the operation was done.
    #[error("the connection was closed by {}", if *.by_peer { "the peer" } else { "this side" })]
    Closed {
        /// By the peer, not by us.
        by_peer: bool,
    },
    /// A place outside of memory.
    #[error("{len} bytes at offset {offset} leave memory of {limit} bytes")]
    Bounds {
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes there are.
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
    /// A handle that does not allow this; noticed before anything was sent.
    #[error("the handle grants {has}, not {needs}")]
    Right {
        /// What it grants.
        has: Access,
        /// What is needed.
        needs: Access,
    },
    /// A word that is not aligned.
    #[error("{at:#x} is not a multiple of {align}")]
    Unaligned {
        /// Where it is.
        at: u64,
        /// What it should be a multiple of.
        align: u64,
    },
    /// Bytes that are no handle of remote memory.
    #[error("{got} bytes are no handle of remote memory: {why}")]
    Handle {
        /// How many there are.
        got: usize,
        /// What is wrong with them.
        why: &'static str,
    },
    /// Text that names no queue pair.
    #[error("`{text}` names no queue pair: {why}")]
    Name {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something of another device or protection domain.
    #[error("it belongs to another device or protection domain")]
    Foreign,
    /// Somebody else holds the queue pair: a listener that is about to connect it.
    #[error("the queue pair is being connected, and does not move meanwhile")]
    Held,
    /// A service was not handed over (V1).
    #[error("handover: {0}")]
    Handover(Box<HandoverError>),
    /// An event that only the adapter itself can know of.
    #[error("{cause:?} is the adapter's own to tell, and cannot be injected")]
    OwnEvent {
        /// The event.
        cause: Cause,
    },
    /// No memory.
    #[error("{len} bytes cannot be allocated")]
    Allocation {
        /// Bytes asked for.
        len: usize,
    },
    /// A name that leads nowhere.
    #[error("{name} cannot be resolved: {why}")]
    Address {
        /// The name.
        name: String,
        /// What the system says.
        why: String,
    },
    /// It took longer than the caller allows.
    #[error("not done in time")]
    Timeout,
}

impl From<verbena_nic::Error> for Error {
    fn from(error: verbena_nic::Error) -> Error {
        Error::Engine(error.into())
    }
}

impl From<verbena_engine::sys::Error> for Error {
    fn from(error: verbena_engine::sys::Error) -> Error {
        Error::Engine(error.into())
    }
}

impl Error {
    /// Whose fault it is.
    ///
    /// ```
    /// use verbena::{Error, Fault};
    /// assert_eq!(Error::Closed { by_peer: true }.fault(), Fault::Peer);
    /// ```
    pub fn fault(&self) -> Fault {
        use verbena_engine::Error as E;
        match self {
            Error::Engine(error) => match error {
                E::System(_) => Fault::System,
                E::TooManyHandlers { .. } => Fault::Limit,
                E::Failed(_) => Fault::System,
                E::Adapter(error) => match error.kind() {
                    Kind::Exhausted => Fault::Limit,
                    _ => Fault::Caller,
                },
                E::Unreachable { .. }
                | E::Startup { .. }
                | E::Rejected { .. }
                | E::Timeout { .. }
                | E::Unproven { .. }
                | E::Tls { .. } => Fault::Peer,
                E::NotConnectable { .. }
                | E::PrivateData { .. }
                | E::NoDevice
                | E::NotOurs { .. }
                | E::KeyFile(_)
                | E::NoDatagrams
                | E::Owned(_)
                | E::NotMulticast { .. }
                | E::NotCallable { .. }
                | E::NoHandler { .. }
                | E::NoProcessor { .. }
                | E::NoProcessors
                | E::Foreign
                | E::NoRoom { .. }
                | E::Receives { .. }
                | E::Image(_)
                | E::Descriptors { .. }
                | E::Virtual { .. }
                | E::Options(_)
                | E::Interrupts(_)
                | E::Closed => Fault::Caller,
            },
            Error::Post(PostError::Full(_)) | Error::Allocation { .. } => Fault::Limit,
            Error::Failed(failure) => failure.fault(),
            Error::Closed { by_peer: true } | Error::Timeout => Fault::Peer,
            Error::Handle { .. } | Error::Name { .. } => Fault::Peer,
            Error::Config(_)
            | Error::Profile(_)
            | Error::Post(_)
            | Error::Closed { .. }
            | Error::Bounds { .. }
            | Error::TooLong { .. }
            | Error::Right { .. }
            | Error::Unaligned { .. }
            | Error::Foreign
            | Error::Held
            | Error::Handover(_)
            | Error::OwnEvent { .. }
            | Error::Address { .. } => Fault::Caller,
        }
    }

    /// The number that the operating system refused with, if it was the system that did.
    ///
    /// ```
    /// let taken = verbena::Device::open()?.listen("192.0.2.1:1").unwrap_err();
    /// println!("error number {:?}", taken.os_error());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn os_error(&self) -> Option<i32> {
        use verbena_engine::Error as E;
        use verbena_mem::{Misuse, Unfit};
        use verbena_nic::Error as N;
        match self {
            Error::Engine(E::System(cause) | E::Unreachable { cause, .. }) => Some(cause.code()),
            Error::Engine(E::Adapter(N::Memory(Misuse::Unfit(Unfit::System {
                errno, ..
            })))) => Some(*errno),
            _ => None,
        }
    }

    /// What the peer said when it refused, if it did.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local()?);
    /// listener.next().wait()?.reject(b"not today");
    /// assert_eq!(connecting.wait().unwrap_err().rejection(), Some(&b"not today"[..]));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn rejection(&self) -> Option<&[u8]> {
        match self {
            Error::Engine(verbena_engine::Error::Rejected { private_data, .. }) => {
                Some(private_data)
            }
            _ => None,
        }
    }

    /// The setting `tls` is the reason: there is no TLS with the peer, or what was asked for cannot be encrypted.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_tls());
    /// ```
    pub fn is_tls(&self) -> bool {
        use verbena_engine::Error as E;
        matches!(self, Error::Engine(E::Tls { .. } | E::NoDatagrams))
    }

    /// Somebody still uses what was to go, such as a window the memory under it.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_busy());
    /// ```
    pub fn is_busy(&self) -> bool {
        use verbena_engine::Error as E;
        use verbena_mem::Misuse;
        use verbena_nic::Error as N;
        let Error::Engine(E::Adapter(error)) = self else {
            return false;
        };
        matches!(error, N::InUse { .. } | N::Memory(Misuse::Busy { .. }))
    }

    /// Memory that was to be registered is not mapped, or not as its rights need it.
    ///
    /// ```
    /// assert!(!verbena::Error::Timeout.is_unmapped());
    /// ```
    pub fn is_unmapped(&self) -> bool {
        use verbena_engine::Error as E;
        use verbena_mem::Misuse;
        use verbena_nic::Error as N;
        let Error::Engine(E::Adapter(N::Memory(misuse))) = self else {
            return false;
        };
        matches!(misuse, Misuse::Unmapped { .. })
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

    /// The connection is over: nothing more will work on it.
    ///
    /// ```
    /// assert!(verbena::Error::Closed { by_peer: true }.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. } | Error::Failed(_))
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
            // What we asked of the peer made no sense to it, or was not granted.
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
