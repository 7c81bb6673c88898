//! What carries the messages of a connection, for queries and `verbena devinfo PID`.
//! That of a connection over TCP may change once, soon after the connection was made (docs/same-host.md).

/// What carries the messages of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamPath {
    /// The TCP connection, and why it is not shared memory.
    Tcp(Option<String>),
    /// Shared memory of two processes of one host (docs/same-host.md).
    SharedMemory(PeerProcess),
    /// Packets of RoCEv2 (docs/roce.md).
    Roce,
}

/// The process at the other end of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its number, if it has one in this process's namespace.
    pub pid: Option<u32>,
    /// Its memory can be read by process_vm_readv(2), which payload could be fetched with.
    pub is_readable: bool,
}

impl StreamPath {
    /// One word for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            StreamPath::Tcp(_) => "tcp",
            StreamPath::SharedMemory(_) => "shared-memory",
            StreamPath::Roce => "roce",
        }
    }

    /// The process at the other end of shared memory.
    pub(crate) fn peer_process(&self) -> Option<u32> {
        match self {
            StreamPath::SharedMemory(peer) => peer.pid,
            StreamPath::Tcp(_) | StreamPath::Roce => None,
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
