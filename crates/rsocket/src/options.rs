//! What a socket shall be like: sizes that count when it connects or accepts, and how long it waits.
//! It promises sizes within what the adapter and the protocol bear, whatever was asked for.
//! It refuses to change a connection that stands.

use std::time::Duration;

/// Bytes of a buffer at least and at most.
const BUFFER: (usize, usize) = (2 << 10, 64 << 20);
/// Requests and messages at least and at most.
const QUEUE: (usize, usize) = (4, 4096);
/// Bytes of inline data at most.
const INLINE: usize = 1024;

/// What closing does about data that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Returns at once; it leaves in the background.
    Usual,
    /// Waits as long as this, then leaves the rest to the background; no time at all breaks the connection off.
    For(Duration),
}

/// A socket's options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes that wait for us to be read.
    pub recv_buffer: usize,
    /// Bytes that we have sent and the peer has not got.
    pub send_buffer: usize,
    /// Requests under way.
    pub sends: usize,
    /// Messages that the peer may have under way.
    pub messages: usize,
    /// Bytes that are copied into the request itself.
    pub inline: usize,
    /// Pieces of memory that we may map for the peer.
    pub maps: usize,
    /// How long a thread polls before it goes to sleep.
    pub polling: Duration,
    /// How long receiving waits at most.
    pub recv_timeout: Option<Duration>,
    /// How long sending waits at most.
    pub send_timeout: Option<Duration>,
    /// What closing waits for.
    pub linger: Linger,
    /// A socket bound to all IPv6 addresses is not bound to all IPv4 addresses as well.
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
            linger: Linger::Usual,
            v6_only: false,
        }
    }
}

impl Options {
    /// The same with sizes that can be had of an adapter that takes so many requests.
    pub(crate) fn within(self, requests: usize) -> Options {
        let buffer = |len: usize| len.clamp(BUFFER.0, BUFFER.1);
        // The queue pair gets twice as many, see `link`.
        let most = (requests / 4).clamp(QUEUE.0, QUEUE.1);
        let queue = |len: usize| len.clamp(QUEUE.0, most);
        Options {
            recv_buffer: buffer(self.recv_buffer),
            send_buffer: buffer(self.send_buffer),
            sends: queue(self.sends),
            messages: queue(self.messages),
            inline: self.inline.clamp(crate::word::MOST, INLINE),
            ..self
        }
    }
}
