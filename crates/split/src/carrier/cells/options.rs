//! What a carrier of cells is told when it is made, and what it counts.
//! Every number has a default that suits a local network. It refuses to check: the channel adapter does.

use core::time::Duration;

use verbena_cells::{Config, PortCounters};

/// Sizes, times and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellOptions {
    /// Payload of a cell; unless given, what fills one packet on the way to the unit, or one frame of the interface. One that
    /// listens takes what those who dial say.
    pub cell: Option<u16>,
    /// Bytes of a UDP datagram; unless given, or if that is more, what fits one packet on the way.
    pub datagram: Option<usize>,
    /// Longest packet, and longest write that is taken.
    pub packet: u32,
    /// How long an acknowledgement may take until one was measured.
    pub timeout: Duration,
    /// Tries without any progress before an acknowledged pair ends, and before nobody is there.
    pub retries: u32,
    /// A pair does not end for silence of less than this, whatever the tries: drivers have a patience of their own.
    pub patience: Duration,
    /// How long to wait for the answer to a request before it is asked again.
    pub connect_timeout: Duration,
    /// An acknowledged pair that heard nothing for so long asks whether its peer is there.
    pub keep_alive: Option<Duration>,
    /// Most pairs.
    pub pairs: usize,
    /// Bytes that may wait in the socket, unread; the system may allow less.
    pub receive_room: usize,
    /// Bytes that may wait in the socket to leave; the system may allow less.
    pub send_room: usize,
    /// Datagrams of one length leave as one message where the system has that.
    pub joins: bool,
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
            receive_room: 8 << 20,
            send_room: 4 << 20,
            joins: true,
        }
    }
}

impl CellOptions {
    /// The channel adapter's numbers, for cells of this payload.
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

/// What a carrier of cells has done; numbers only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CellCounters {
    /// What its port counts.
    pub port: PortCounters,
    /// Datagrams that came and were looked at.
    pub datagrams_in: u64,
    /// Datagrams that the system took.
    pub datagrams_out: u64,
    /// Datagrams of sources that the settings refuse, of nobody who had asked for a connection, from where nobody is connected, or too short for any cell.
    pub strangers: u64,
    /// Requests for a connection in the name of somebody who is connected from elsewhere.
    pub diverted: u64,
    /// Datagrams of senders that asked for a connection without a good cookie, and were answered.
    pub retries: u64,
    /// Datagrams that the system would not send, or that nobody knows the way for any more.
    pub lost: u64,
}
