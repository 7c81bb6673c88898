//! What a port is told when it is made: sizes, times and limits.
//! It promises that whatever a peer or a consumer can grow has its limit here, and that a set of numbers which cannot work is
//! refused as a whole. It refuses to know where the numbers come from.

use core::time::Duration;

use verbena_wire::cell::MAX_OVERHEAD;

use crate::error::Error;

/// Payload of a cell unless somebody asks for another (P3).
pub const DEFAULT_CELL: u16 = 256;
/// Largest payload of a cell: with all that goes around it, a jumbo frame over IPv6 and UDP.
pub const MAX_CELL: u16 = 8832;
/// Most packets of a work queue pair that may be under way; receivers of connectionless packets remember as many.
pub const MAX_WINDOW: usize = 64;
/// Cells of the longest packet: their numbers have 16 bits.
pub const MAX_CELLS: u32 = 1 << 16;

const _: () = assert!(MAX_CELL as usize + MAX_OVERHEAD + 48 <= 9000);

/// The numbers of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most payload of a cell: sent, and taken from peers.
    pub cell: u16,
    /// Longest packet that may be posted or written here.
    pub packet: u32,
    /// Packets under way on an acknowledged work queue pair.
    pub window: usize,
    /// How long an acknowledgement may take until one was measured; it doubles with each try.
    pub timeout: Duration,
    /// The least that it may take, however fast the peer is.
    pub least_timeout: Duration,
    /// Tries without any progress before a channel fails.
    pub retries: u32,
    /// A connected channel does not fail for silence of less than this, whatever the tries: on a fast way they are over soon, and
    /// a peer may be busy for longer.
    pub patience: Duration,
    /// How long to wait after the peer had no receive; it doubles up to 64 times this.
    pub busy_delay: Duration,
    /// Times that a peer may say so of one packet before the channel fails.
    pub busy_retries: u32,
    /// How long a Connect may wait for its answer at first, and a request for the consumer's in all.
    pub connect_timeout: Duration,
    /// An acknowledged, connected channel that heard nothing for so long asks whether its peer is there, as often as there are
    /// retries and with `connect_timeout` between; without it, one that has nothing to send learns nothing.
    pub keep_alive: Option<Duration>,
    /// Work queue pairs of the port.
    pub pairs: usize,
    /// Requests for connections that wait for the consumer.
    pub requests: usize,
    /// Of these, from one port.
    pub requests_per_peer: usize,
    /// Senders of connectionless, acknowledged packets that a work queue pair remembers.
    pub senders: usize,
    /// Answers that wait for the carrier: to cells of no channel, and to connectionless packets.
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
    /// Refuses numbers that cannot work.
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

    /// Bytes of the largest datagram that a cell needs: a carrier's buffers are at least so long.
    pub fn largest_cell(&self) -> usize {
        usize::from(self.cell) + MAX_OVERHEAD
    }
}
