//! Settings of a connection, with defaults for a local network.
//! Every one of them may have any value: those that make no sense are limited where they are used.

use core::time::Duration;

use super::queue::Framing;

/// When an idle connection is probed (RFC 9293, 3.8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer after which the connection is closed.
    pub probes: u32,
}

/// Settings of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// Bytes of the peer that the consumer can take: the largest receive window.
    pub receive_window: u64,
    /// How queued data becomes segments.
    pub framing: Framing,
    /// Bytes of an IP packet on the link.
    pub mtu: usize,
    /// The connection is over IPv6.
    pub is_v6: bool,
    /// The least retransmission timeout.
    pub min_rto: Duration,
    /// How long an acknowledgement may wait for data or for a second segment (RFC 1122, 4.2.3.2).
    pub delayed_ack: Duration,
    /// Segments that are not full wait while data is in flight; only for [`Framing::Bytes`].
    pub nagle: bool,
    /// Probes of idle connections.
    pub keep_alive: Option<KeepAlive>,
    /// How long data may stay without any progress before the connection is closed (RFC 9293, 3.8.3).
    pub user_timeout: Duration,
    /// How long a SYN is repeated.
    pub connect_timeout: Duration,
    /// The time in `TimeWait`: twice the life of a segment.
    pub time_wait: Duration,
    /// How long the peer's end of data is awaited after the consumer has let the connection go.
    pub fin_wait: Duration,
    /// Offer or accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer or accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offer or accept scaled windows (RFC 7323).
    pub window_scaling: bool,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            receive_window: 1 << 20,
            framing: Framing::Bytes,
            mtu: 1500,
            is_v6: false,
            min_rto: Duration::from_millis(200),
            delayed_ack: Duration::from_millis(40),
            nagle: false,
            keep_alive: None,
            user_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(180),
            time_wait: Duration::from_secs(60),
            fin_wait: Duration::from_secs(60),
            timestamps: true,
            sack: true,
            window_scaling: true,
        }
    }
}
