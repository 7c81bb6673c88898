//! Why a socket call did not do what it was asked: one word for each number that socket programs look for.
//! It promises that what may work later (`WouldBlock`, `InProgress`, `Interrupted`) is told apart from what will not.
//! It refuses numbers of the system: those are the C face's.

/// Why not.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can be done now without waiting.
    #[error("it would have to wait")]
    WouldBlock,
    /// Connecting has begun and goes on.
    #[error("connecting has begun and goes on")]
    InProgress,
    /// Connecting had begun before.
    #[error("connecting has begun before")]
    Already,
    /// A signal came while it waited.
    #[error("a signal came")]
    Interrupted,
    /// There is no connection.
    #[error("the socket is not connected")]
    NotConnected,
    /// There is a connection already.
    #[error("the socket is connected already")]
    Connected,
    /// The call makes no sense in this state, or with this argument.
    #[error("{0}")]
    Invalid(&'static str),
    /// The socket was closed.
    #[error("the socket is closed")]
    Closed,
    /// The peer turned the connection away.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// Whoever answered does not speak this protocol.
    #[error("the peer is no rsocket: {0}")]
    Stranger(&'static str),
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke")]
    Reset,
    /// Nothing can be sent any more.
    #[error("the socket has ended sending, or the peer is gone")]
    Pipe,
    /// A table is full.
    #[error("{what}: there are {limit} at most")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// No memory of the peer's is mapped there.
    #[error("the peer has mapped nothing at offset {offset:#x}")]
    Unmapped {
        /// Where it was looked for.
        offset: u64,
    },
    /// The adapter or the system.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
}

impl Error {
    /// The same call may work later.
    pub fn is_would_block(&self) -> bool {
        matches!(self, Error::WouldBlock)
    }

    /// What a failed attempt to connect tells.
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
