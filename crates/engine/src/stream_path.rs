//! What carries the stream of a connection, for queries and `verbena devinfo PID`.
//! It may change once, soon after the connection was made (docs/same-host.md).

/// What carries the stream of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamPath {
    /// The TCP connection, and why it is not shared memory if that was tried.
    Tcp(Option<String>),
    /// Shared memory of two processes of one host (docs/same-host.md).
    SharedMemory,
}

impl StreamPath {
    /// One word for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            StreamPath::Tcp(_) => "tcp",
            StreamPath::SharedMemory => "shared-memory",
        }
    }

    /// Why it is not shared memory, as one word.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            StreamPath::Tcp(Some(why)) => Some(why.replace(char::is_whitespace, "-")),
            _ => None,
        }
    }
}
