//! The transport of a service connection: queue pairs, registered memory, and connection management, the same for every carrier. A carrier
//! keeps the order within a pair, completes every request that is posted on a pair that is not destroyed, and accesses no memory through a
//! destroyed pair. It never blocks but in [`Carrier::sleep`].

pub mod address;
pub mod cells;
pub mod iwarp;
pub(crate) mod null;
pub mod open;
pub(crate) mod poll_wait;

use core::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena::Device;
pub use verbena::events::ChannelEvent;
use verbena::events::{Cause, Origin};
pub use verbena::low::WaitFd;
use verbena::unstable::access::source_of;
use verbena_lan::Mac;
use verbena_nic::Wc;
use verbena_nic::wr::{RemoteAddr, Sge};
use verbena_wire::{Stag, To};

/// A queue pair of a carrier; completions name it by the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair(pub u32);

/// A peer's connection request, until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The source of a request, as limits count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IP address or network, by [`source_of`].
    Ip(IpAddr),
    /// An Ethernet station.
    Mac(Mac),
}

impl Source {
    /// The source that an address counts for.
    pub fn of(address: IpAddr) -> Source {
        Source::Ip(source_of(address))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Ip(ip @ IpAddr::V6(v6)) if v6.segments().ends_with(&[0; 4]) => {
                write!(f, "{ip}/64")
            }
            Source::Ip(ip) => ip.fmt(f),
            Source::Mac(mac) => mac.fmt(f),
        }
    }
}

/// Options of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairOptions {
    /// Every packet arrives, or the pair ends; otherwise packets may be lost (P2). A carrier that never loses packets may ignore it.
    pub acknowledged: bool,
    /// Capacity of the send queue.
    pub sends: usize,
    /// Capacity of the receive queue.
    pub receives: usize,
}

/// Registered memory. It is accessed by copies only, since a peer may write to it at any time; no reference into it exists.
pub trait Memory: fmt::Debug + Send {
    /// Its STag.
    fn stag(&self) -> Stag;
    /// The address of its first byte, as peers name it.
    fn address(&self) -> To;
    /// Its length in bytes.
    fn len(&self) -> usize;
    /// Whether its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `bytes` in at `offset`; false, and nothing copied, if they do not fit.
    fn write(&self, offset: usize, bytes: &[u8]) -> bool;
    /// Fills `into` with a copy of what is at `offset`; false, and nothing copied, if it reaches beyond the end.
    fn read(&self, offset: usize, into: &mut [u8]) -> bool;

    /// Reads from a descriptor into `head` and then into `len` bytes at `offset`, in one call and without a copy; returns the bytes read.
    fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> std::io::Result<usize>;

    /// Writes `head` and then `len` bytes from `offset` to a descriptor, in one call and without a copy; returns the bytes written.
    fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> std::io::Result<usize>;

    /// A scatter/gather element for `len` bytes at `offset`.
    fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge {
            addr: self.address().get().wrapping_add(offset as u64),
            len,
            stag: self.stag(),
        }
    }
}

/// The access rights of registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAccess {
    /// Local requests only.
    Local,
    /// Also RDMA writes of connected peers.
    RemoteWrite,
}

/// An event of a connection, reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarrierEvent {
    /// A connection request: call [`accept`](Carrier::accept) or [`reject`](Carrier::reject).
    Request {
        /// Identifies the request until then.
        ticket: Ticket,
        /// Its source, for messages.
        from: String,
        /// Its source, for limits; `None` if the carrier no longer knows it.
        source: Option<Source>,
        /// Its private data.
        private_data: Vec<u8>,
        /// The kind of channel requested; `None` if the carrier cannot know.
        acknowledged: Option<bool>,
    },
    /// The carrier itself rejected a connection request.
    Rejected {
        /// Its source, for messages.
        from: String,
        /// The reason, for messages.
        why: String,
    },
    /// A pair that requested or accepted a connection is connected: it may send.
    Connected {
        /// The pair.
        pair: Pair,
        /// The peer's private data; empty for a pair that accepted.
        private_data: Vec<u8>,
    },
    /// A pair that requested or accepted a connection is not connected: rejected, unanswered, or a failed connection.
    Refused {
        /// The pair, which can only be destroyed.
        pair: Pair,
        /// The reason, for messages.
        why: String,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// A connection ended; posted requests complete as flushed.
    Ended {
        /// The pair, which can only be destroyed.
        pair: Pair,
        /// The reason, for messages.
        why: String,
    },
}

/// Why a carrier's call failed.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// An address that this carrier cannot use.
    #[error("{address}: {why}")]
    Address {
        /// As it was given.
        address: String,
        /// The reason.
        why: String,
    },
    /// The interface of a carrier over Ethernet.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// The adapter of an iWARP carrier.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// The channel adapter of a carrier of cells.
    #[error(transparent)]
    Cells(#[from] verbena_cells::Error),
    /// Memory could not be registered.
    #[error("cannot register {len} bytes of memory: {why}")]
    Memory {
        /// The length requested.
        len: usize,
        /// The reason.
        why: String,
    },
    /// A request does not fit its queue, or its pair was destroyed.
    #[error("pair {}: {why}", pair.0)]
    Post {
        /// The pair.
        pair: Pair,
        /// The reason.
        why: String,
    },
    /// A system call failed.
    #[error("{call}: {error}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
}

/// The error of carriers without connectionless pairs.
pub(crate) fn no_datagrams(carrier: &str) -> CarrierError {
    CarrierError::Address {
        address: format!("{carrier}://"),
        why: "no connectionless channels here: they need udp:// or ethernet://".to_owned(),
    }
}

/// The result of a carrier's calls.
pub type Result<T> = core::result::Result<T, CarrierError>;

/// A descriptor to wait on.
#[derive(Debug, Clone, Copy)]
pub struct CarrierFd<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Also wait for writability.
    pub write: bool,
}

/// Queue pairs of one kind, all of one driver.
///
/// Order of calls: posting and connecting may take effect at once or with the next [`turn`](Carrier::turn); call that after any of them,
/// when a descriptor is ready and when the [`deadline`](Carrier::deadline) has passed; then take all [`next_event`](Carrier::next_event). Before
/// sleeping [`prepare_sleep`](Carrier::prepare_sleep) must return true.
pub trait Carrier: fmt::Debug + Send {
    /// Its address, for messages and for dialling.
    fn local_addr(&self) -> String;

    /// Its name: `udp`, `ethernet`, `iwarp`.
    fn name(&self) -> &'static str;

    /// Whether packets on a pair that is not acknowledged may be lost.
    fn is_lossy(&self) -> bool;

    /// Starts a new protection domain: pairs reach memory that was registered since the same call, and no other.
    fn new_protection_domain(&mut self) -> Result<()>;

    /// Registers memory in the current protection domain.
    fn register_memory(&mut self, len: usize, reach: MemoryAccess) -> Result<Box<dyn Memory>>;

    /// Creates a pair in the current protection domain. Receives can be posted at once.
    fn create_pair(&mut self, options: PairOptions) -> Result<Pair>;

    /// Requests a connection to the address that this carrier dials; [`CarrierEvent`] has the result.
    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()>;

    /// Accepts a request; [`CarrierEvent::Connected`] says when the pair may send. Receives may complete before that.
    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()>;

    /// Rejects a request, with private data.
    fn reject(&mut self, ticket: Ticket, private: &[u8]);

    /// Bytes of the longest packet on a connectionless pair (P2), which is one cell; `None` if this carrier has no such pairs.
    fn datagram_size(&self) -> Option<u32> {
        None
    }

    /// Creates a connectionless pair in the current protection domain: each packet names its destination. It neither sends nor receives
    /// until it is [bound](Carrier::bind_datagrams).
    fn create_datagram_pair(&mut self, _options: PairOptions) -> Result<Pair> {
        Err(no_datagrams(self.name()))
    }

    /// Sends the packets of a connectionless pair to the pair of this number at the peer of `with`, which is connected, and accepts
    /// packets from there only.
    fn bind_datagrams(&mut self, _pair: Pair, _with: Pair, _number: u32) -> Result<()> {
        Err(no_datagrams(self.name()))
    }

    /// Destroys a pair: the peer is told if possible, nothing is placed any more, and completions not taken yet are dropped.
    fn destroy(&mut self, pair: Pair);

    /// Posts a receive; without a piece, for the immediate data of a write.
    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()>;

    /// Posts a send of one piece, which generates a completion.
    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()>;

    /// Posts an RDMA write of one piece, which generates a completion.
    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: RemoteAddr,
        immediate: Option<u32>,
    ) -> Result<()>;

    /// Makes progress, within bounds, and appends completions in the order of each pair.
    fn turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()>;

    /// The next event.
    fn next_event(&mut self) -> Option<CarrierEvent>;

    /// When [`turn`](Carrier::turn) is due if nothing happens before.
    fn deadline(&self) -> Option<Instant>;

    /// Appends the descriptors to wait on.
    fn wait_fds<'a>(&'a self, on: &mut Vec<CarrierFd<'a>>);

    /// Prepares to sleep; false if there is work, so that a turn is due first.
    fn prepare_sleep(&mut self) -> bool;

    /// Makes what happens on its channels events of this adapter. A carrier with an adapter of its own keeps that.
    fn report_channels_to(&mut self, _device: &Device) {}

    /// The adapter whose event queues get what happens on its channels (E7); `None` if there is none.
    fn event_device(&self) -> Option<&Device> {
        None
    }

    /// Whether [`report_channel`](Carrier::report_channel) has an effect: that adapter has an observer of its events.
    fn observes_channels(&self) -> bool {
        self.event_device().is_some_and(Device::is_observed)
    }

    /// Something happened on a channel of a link (E7): it becomes an event of the adapter.
    fn report_channel(&mut self, channel: u8, what: ChannelEvent, count: u32) {
        let cause = Cause::Channel {
            channel,
            what,
            count,
        };
        if let Some(device) = self.event_device() {
            // Fails only when the adapter is down, and then there is no observer to tell.
            let _ = device.inject(cause, Origin::UNSPECIFIED);
        }
    }

    /// Whether it makes progress during [`sleep`](Carrier::sleep): a driver with several carriers sleeps in such a one.
    fn progresses_in_sleep(&self) -> bool {
        false
    }

    /// Waits until there is work, one of `others` is ready, or the timeout has passed, and marks the ready ones. Wakeups may be spurious.
    /// [`prepare_sleep`](Carrier::prepare_sleep) must have returned true, and a turn is due afterwards.
    fn sleep(&self, others: &mut [WaitFd<'_>], timeout: Option<Duration>) -> Result<()> {
        let mut on = Vec::new();
        self.wait_fds(&mut on);
        poll_wait::poll(&on, others, timeout).map_err(|error| CarrierError::System {
            call: "poll",
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_64_prefix_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap()).to_string();
        let each = [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
            ("fe80::1", "fe80::1"),
            ("::1", "::1"),
        ];
        for (text, source) in each {
            assert_eq!(of(text), source);
        }
    }
}
