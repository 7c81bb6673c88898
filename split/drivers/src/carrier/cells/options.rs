//! Options and counters of a carrier of cells. Every option has a default that suits a local network; the channel adapter checks the
//! values.

use core::time::Duration;

use verbena_cells::{Config, PortCounters};

/// Sizes, times and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellOptions {
    /// Payload of a cell; `None`: what fills one packet on the path to the unit, or one frame of the interface. A listener uses the smaller of
    /// its own and the dialler's.
    pub cell: Option<u16>,
    /// Largest UDP datagram; in any case limited to what fits one packet on the path.
    pub datagram: Option<usize>,
    /// The longest packet, and the longest write accepted.
    pub packet: u32,
    /// Initial retransmission timeout, until a round trip was measured.
    pub timeout: Duration,
    /// Attempts without progress before an acknowledged pair ends, and before a connection request fails.
    pub retries: u32,
    /// A pair does not end before this much silence, whatever the number of attempts: drivers have their own timeout.
    pub patience: Duration,
    /// Wait for the answer to a request before it is repeated.
    pub connect_timeout: Duration,
    /// An acknowledged pair that received nothing for this long probes its peer.
    pub keep_alive: Option<Duration>,
    /// Most pairs.
    pub pairs: usize,
    /// Size of the socket's receive buffer in bytes; the system may allow less.
    pub receive_buffer: usize,
    /// Size of the socket's send buffer in bytes; the system may allow less.
    pub send_buffer: usize,
    /// Datagrams of one length are sent as one message (UDP GSO) where the system supports it.
    pub gso: bool,
}

impl Default for CellOptions {
    fn default() -> CellOptions {
        CellOptions {
            cell: None,
            datagram: None,
            packet: 1 << 20,
            timeout: Duration::from_millis(20),
            retries: 12,
            patience: Duration::from_secs(60),
            connect_timeout: Duration::from_millis(200),
            keep_alive: Some(Duration::from_secs(1)),
            pairs: 4096,
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            gso: true,
        }
    }
}

impl CellOptions {
    /// The channel adapter's configuration, for cells of this payload.
    pub(super) fn config(&self, cell: u16) -> Config {
        Config {
            cell,
            packet: self.packet,
            timeout: self.timeout,
            retries: self.retries,
            patience: self.patience,
            connect_timeout: self.connect_timeout,
            keep_alive: self.keep_alive,
            pairs: self.pairs,
            ..Config::default()
        }
    }
}

/// Counters of a carrier of cells, which only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CellCounters {
    /// The port's counters.
    pub port: PortCounters,
    /// Datagrams received and processed.
    pub datagrams_in: u64,
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Datagrams dropped: of refused sources, without a valid connection request from an unknown address, or too short for a cell.
    pub dropped: u64,
    /// Connection requests with the port address of a peer that is connected from another address.
    pub spoofed: u64,
    /// Datagrams with requests without a valid cookie that were answered.
    pub retries: u64,
    /// Datagrams that the system could not send, or whose destination is no longer known.
    pub lost: u64,
}
