//! Several datagrams with one call: limits that every kernel accepts, and the result.
//! The same for real and simulated sockets.

/// Datagrams that one call sends at most.
pub const MAX_SEGMENTS: usize = 64;
/// Bytes that one call sends at most: the longest UDP payload over IPv4 or IPv6.
pub const MAX_SEGMENTS_LEN: usize = 65_507;
/// Members of a group of sockets that shares a port, as far as packets are steered to them.
pub const MAX_STEERED: u16 = 64;

/// Result of sending several datagrams with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentsOutcome {
    /// All were sent.
    Sent,
    /// There is no room now; none was sent.
    Full,
    /// The system does not cut buffers into datagrams of this length on this path; none was sent, and single ones may be.
    Unsupported,
}
