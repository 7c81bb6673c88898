//! What the kernel tells of a TCP connection. It is read when a tool asks, never while messages move.

use core::time::Duration;

/// Numbers of a TCP connection, for a reader that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpNumbers {
    /// Segments sent again.
    pub retransmitted: u32,
    /// Bytes that the peer has room for; 0 also from a kernel that does not tell (before Linux 5.4).
    pub window: u32,
    /// How long the peer's window has delayed sending, in all.
    pub window_limited: Duration,
    /// Time since something arrived.
    pub heard: Duration,
}
