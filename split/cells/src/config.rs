//! The configuration of a port: sizes, times and limits. Everything that a peer or a consumer can grow has its limit here. Values that
//! cannot work are rejected as a whole when the port is created.

use core::time::Duration;

use verbena_split_wire::cell::MAX_OVERHEAD;

use crate::error::Error;

/// Default payload of a cell (P3).
pub const DEFAULT_CELL: u16 = 256;
/// Largest payload of a cell: with all headers it fits a jumbo frame over IPv6 and UDP.
pub const MAX_CELL: u16 = 8832;
/// Most packets of a work queue pair in flight; receivers of connectionless packets remember as many.
pub const MAX_WINDOW: usize = 64;
/// Cells of the longest packet: cell numbers have 16 bits.
pub const MAX_CELLS: u32 = 1 << 16;

const _: () = assert!(MAX_CELL as usize + MAX_OVERHEAD + 48 <= 9000);

/// The configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most payload of a cell, sent and received.
    pub cell: u16,
    /// Longest packet that may be posted, or written by a peer.
    pub packet: u32,
    /// Most packets in flight on a work queue pair.
    pub window: usize,
    /// Acknowledgement timeout until a round-trip time was measured; it doubles with each retry, up to 64 times.
    pub timeout: Duration,
    /// Lower limit of the measured timeout.
    pub least_timeout: Duration,
    /// Retries without progress before a channel fails.
    pub retries: u32,
    /// A connected channel does not fail for a silence shorter than this, however many retries: on a fast path they are over soon, and a
    /// peer may be busy for longer.
    pub patience: Duration,
    /// Delay after the peer had no receive; it doubles, up to 64 times this.
    pub busy_delay: Duration,
    /// Times that a peer may report this of one packet before the channel fails.
    pub busy_retries: u32,
    /// Interval between Connects, of which there are `retries` more. A peer's request waits `retries + 2` times this for the consumer.
    pub connect_timeout: Duration,
    /// An acknowledged, connected channel that received nothing for this time sends probes, `retries` of them, `connect_timeout` apart.
    /// Without it, a channel that has nothing to send does not notice that its peer is gone.
    pub keep_alive: Option<Duration>,
    /// Limit on work queue pairs.
    pub pairs: usize,
    /// Limit on requests for connections that wait for the consumer.
    pub requests: usize,
    /// Limit on those from one port.
    pub requests_per_peer: usize,
    /// Senders of connectionless, acknowledged packets that a work queue pair remembers.
    pub senders: usize,
    /// Limit on answers that wait for the carrier: those of the port to cells without a channel, and those of a connectionless work queue
    /// pair.
    pub answers: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cell: DEFAULT_CELL,
            packet: 1 << 20,
            window: MAX_WINDOW,
            timeout: Duration::from_millis(20),
            least_timeout: Duration::from_millis(5),
            retries: 8,
            patience: Duration::ZERO,
            busy_delay: Duration::from_millis(1),
            busy_retries: 1000,
            connect_timeout: Duration::from_millis(200),
            keep_alive: None,
            pairs: 4096,
            requests: 64,
            requests_per_peer: 16,
            senders: 256,
            answers: 128,
        }
    }
}

impl Config {
    /// Rejects values that cannot work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |what| Err(Error::Config { what });
        match self {
            c if !(1..=MAX_CELL).contains(&c.cell) => bad("cell size"),
            c if c.packet == 0 => bad("packet size"),
            c if !(1..=MAX_WINDOW).contains(&c.window) => bad("window"),
            c if c.timeout.is_zero() || c.busy_delay.is_zero() || c.connect_timeout.is_zero() => {
                bad("time")
            }
            c if c.senders == 0 || c.answers == 0 || c.pairs == 0 => bad("limit"),
            _ => Ok(()),
        }
    }

    /// Length of the longest cell on the wire; the buffers of a carrier are at least this long.
    pub fn largest_cell(&self) -> usize {
        usize::from(self.cell) + MAX_OVERHEAD
    }
}
