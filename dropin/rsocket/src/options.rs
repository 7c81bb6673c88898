//! Options of a socket: sizes, which apply when it connects or accepts, and timeouts. Sizes are clamped to what the adapter and the
//! protocol allow. They do not change an existing connection.

use std::time::Duration;

/// Limits of a buffer's length.
const BUFFER: (usize, usize) = (2 << 10, 64 << 20);
/// Limits of the number of requests and of messages.
const QUEUE: (usize, usize) = (4, 4096);
/// Limit of inline data.
const INLINE: usize = 1024;

/// How closing treats data in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Returns at once; the data is sent in the background.
    Off,
    /// Waits this long, then leaves the rest to the background; zero aborts the connection.
    For(Duration),
}

/// A socket's options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Length of the receive buffer.
    pub recv_buffer: usize,
    /// Length of the send buffer: bytes that the peer's adapter has not acknowledged.
    pub send_buffer: usize,
    /// Requests in flight.
    pub sends: usize,
    /// Messages that the peer may have in flight.
    pub messages: usize,
    /// Limit of a send that is posted inline.
    pub inline: usize,
    /// Memory ranges that may be mapped for the peer.
    pub maps: usize,
    /// How long a thread polls before it sleeps.
    pub polling: Duration,
    /// Timeout of receiving.
    pub recv_timeout: Option<Duration>,
    /// Timeout of sending.
    pub send_timeout: Option<Duration>,
    /// How closing treats data in flight.
    pub linger: Linger,
    /// A socket bound to the unspecified IPv6 address is not bound to IPv4 as well.
    pub v6_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            recv_buffer: 2 << 20,
            send_buffer: 2 << 20,
            sends: 384,
            messages: 384,
            inline: 256,
            maps: 0,
            polling: Duration::from_micros(50),
            recv_timeout: None,
            send_timeout: None,
            linger: Linger::Off,
            v6_only: false,
        }
    }
}

impl Options {
    /// Clamps sizes to an adapter that takes so many requests.
    pub(crate) fn clamped(self, requests: usize) -> Options {
        let buffer = |len: usize| len.clamp(BUFFER.0, BUFFER.1);
        // The queue pair gets twice as many, see `link`.
        let most = (requests / 4).clamp(QUEUE.0, QUEUE.1);
        let queue = |len: usize| len.clamp(QUEUE.0, most);
        Options {
            recv_buffer: buffer(self.recv_buffer),
            send_buffer: buffer(self.send_buffer),
            sends: queue(self.sends),
            messages: queue(self.messages),
            inline: self.inline.clamp(crate::control_message::MAX_LEN, INLINE),
            ..self
        }
    }
}
