//! Errors of socket calls, one for each error number that socket programs check. Conditions that may pass (`WouldBlock`, `InProgress`,
//! `Interrupted`) are distinct from failures. The mapping to error numbers is in the C API.

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call would block.
    #[error("the operation would block")]
    WouldBlock,
    /// Connecting has started and continues.
    #[error("the connection attempt is in progress")]
    InProgress,
    /// Connecting had started before.
    #[error("a connection attempt is already in progress")]
    Already,
    /// A signal interrupted the wait.
    #[error("interrupted by a signal")]
    Interrupted,
    /// There is no connection.
    #[error("the socket is not connected")]
    NotConnected,
    /// There is a connection already.
    #[error("the socket is connected already")]
    Connected,
    /// The call is not valid in this state, or with this argument.
    #[error("{0}")]
    Invalid(&'static str),
    /// The socket was closed.
    #[error("the socket is closed")]
    Closed,
    /// The peer rejected the connection.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// The peer does not speak this protocol.
    #[error("the peer is not an rsocket: {0}")]
    WrongProtocol(&'static str),
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke")]
    Reset,
    /// Nothing can be sent any more.
    #[error("the socket was shut down for sending, or the peer is gone")]
    Pipe,
    /// A limit was reached.
    #[error("{what}: there are {limit} at most")]
    Full {
        /// The limited objects.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The peer has mapped no memory there.
    #[error("the peer has mapped nothing at offset {offset:#x}")]
    Unmapped {
        /// The offset.
        offset: u64,
    },
    /// An error of the adapter or the system.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
}

impl Error {
    /// The call would block.
    pub fn is_would_block(&self) -> bool {
        matches!(self, Error::WouldBlock)
    }

    /// The error of a failed attempt to connect.
    pub(crate) fn of_connect(error: verbena::Error) -> Error {
        use verbena::Fault;
        match error {
            verbena::Error::Timeout => Error::TimedOut,
            error if error.os_error().is_some() => Error::Adapter(error),
            error if error.fault() == Fault::Peer => Error::Refused(error.to_string()),
            error => Error::Adapter(error),
        }
    }
}
