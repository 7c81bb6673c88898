//! What carries a service connection: queue pairs, memory they reach, and news of connections, whatever is beneath.
//! A carrier promises order within a pair, a completion for every request that was posted and not destroyed, and that nothing
//! reaches memory through a pair that is destroyed. It refuses to wait: the driver sleeps, on descriptors that it names.

pub mod address;
pub mod cells;
pub mod iwarp;
pub(crate) mod nowhere;
pub mod open;
pub(crate) mod rest;

use core::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena::access::source_of;
pub use verbena::low::Beside;
use verbena_lan::Mac;
use verbena_nic::Wc;
use verbena_nic::wr::{Remote, Sge};
use verbena_wire::{Stag, To};

/// A queue pair of a carrier; completions name it by the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair(pub u32);

/// A peer's request for a connection, until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a request came from, as limits count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// As [`source_of`] says.
    Ip(IpAddr),
    /// A station.
    Mac(Mac),
}

impl Source {
    /// Whom this address counts for.
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

/// What a queue pair shall be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairOptions {
    /// Every packet arrives, or the pair ends; otherwise packets may be lost (P2). A carrier that cannot lose anything may
    /// ignore it.
    pub acknowledged: bool,
    /// Requests that may wait in the send queue.
    pub sends: usize,
    /// Requests that may wait in the receive queue.
    pub receives: usize,
}

/// Registered memory. Like everybody else its owner copies in and out; no reference into it exists.
pub trait Memory: fmt::Debug + Send {
    /// Its memory handle.
    fn handle(&self) -> Stag;
    /// The address of its first byte, as peers name it.
    fn at(&self) -> To;
    /// Bytes.
    fn len(&self) -> usize;
    /// No bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `bytes` in at `offset`; false, and nothing copied, if they do not fit.
    fn write(&self, offset: usize, bytes: &[u8]) -> bool;
    /// Fills `into` with a copy of what is at `offset`; false, and nothing copied, if it reaches beyond the end.
    fn read(&self, offset: usize, into: &mut [u8]) -> bool;

    /// Reads from a descriptor into `head` and then into `len` bytes at `offset`, in one call and without a copy; bytes in all.
    fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> std::io::Result<usize>;

    /// Writes `head` and then `len` bytes from `offset` to a descriptor, in one call and without a copy; bytes in all.
    fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> std::io::Result<usize>;

    /// `len` bytes at `offset`, for a request.
    fn piece(&self, offset: usize, len: u32) -> Sge {
        Sge {
            at: self.at().get().wrapping_add(offset as u64),
            len,
            stag: self.handle(),
        }
    }
}

/// Who may reach registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Requests of this side only.
    Local,
    /// Also writes of whoever is connected.
    RemoteWrite,
}

/// Something happened to a connection. Told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Somebody asks: [`accept`](Carrier::accept) or [`reject`](Carrier::reject).
    Request {
        /// Its name until then.
        ticket: Ticket,
        /// Who, for people.
        from: String,
        /// Who, for limits; `None` if the carrier does not know any more.
        source: Option<Source>,
        /// What they say.
        private: Vec<u8>,
        /// The kind of channel they want; `None` if the carrier cannot know.
        acknowledged: Option<bool>,
    },
    /// Somebody asked, and the carrier itself has rejected it.
    Rejected {
        /// Who, for people.
        from: String,
        /// Why, for people.
        why: String,
    },
    /// A pair that asked, or that accepted, is connected: it may send.
    Connected {
        /// The pair.
        pair: Pair,
        /// What they say; empty for one that accepted.
        private: Vec<u8>,
    },
    /// A pair that asked is not connected, or one that accepted: rejected, unanswered, or the way failed.
    Refused {
        /// The pair, good for nothing but to be destroyed.
        pair: Pair,
        /// Why, for people.
        why: String,
        /// What they say.
        private: Vec<u8>,
    },
    /// A connection is no more; what was posted completes as flushed.
    Ended {
        /// The pair, good for nothing but to be destroyed.
        pair: Pair,
        /// Why, for people.
        why: String,
    },
}

/// Why a carrier cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// An address that this carrier cannot use.
    #[error("{address}: {why}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The interface of a carrier over Ethernet.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// The adapter beneath.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// The channel adapter beneath.
    #[error(transparent)]
    Cells(#[from] verbena_cells::Error),
    /// Memory was refused.
    #[error("{len} bytes of memory were refused: {why}")]
    Memory {
        /// Asked for.
        len: usize,
        /// Why.
        why: String,
    },
    /// A request does not fit its queue, or its pair is gone.
    #[error("pair {}: {why}", pair.0)]
    Post {
        /// The pair.
        pair: Pair,
        /// Why.
        why: String,
    },
    /// The system refused.
    #[error("{call}: {error}")]
    System {
        /// What was called.
        call: &'static str,
        /// What it said.
        error: std::io::Error,
    },
}

/// The result of a carrier's calls.
pub type Result<T> = core::result::Result<T, CarrierError>;

/// What a driver sleeps on.
#[derive(Debug, Clone, Copy)]
pub struct Sleeper<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// It waits for room to write, too.
    pub write: bool,
}

/// Queue pairs of one kind, all of one driver.
///
/// In which order to call: posting and connecting may take effect at once or with the next [`turn`](Carrier::turn); call that
/// after any of them, when a descriptor is ready and when the [`deadline`](Carrier::deadline) has passed; then take all
/// [`news`](Carrier::news). Before sleeping [`doze`](Carrier::doze) must say yes.
pub trait Carrier: fmt::Debug + Send {
    /// Its address, for people and for those who connect to it.
    fn local(&self) -> String;

    /// Its name: `udp`, `ethernet`, `iwarp`.
    fn name(&self) -> &'static str;

    /// Packets that leave on a pair that is not acknowledged may be lost on the way.
    fn can_lose(&self) -> bool;

    /// What is made from now on belongs together: pairs reach memory that was made since the same call, and no other's.
    fn separate(&mut self) -> Result<()>;

    /// Registers memory for the pairs that it belongs together with.
    fn memory(&mut self, len: usize, reach: Reach) -> Result<Box<dyn Memory>>;

    /// Makes a pair. Receives may be posted at once.
    fn create(&mut self, options: PairOptions) -> Result<Pair>;

    /// Asks whoever this carrier was told to dial; [`News`] says how it ends.
    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()>;

    /// Agrees to a request; [`News::Connected`] says when the pair may send. What comes may complete before that.
    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()>;

    /// Does not agree, and says why.
    fn reject(&mut self, ticket: Ticket, private: &[u8]);

    /// Ends a pair: the peer is told if it can be, nothing arrives any more, and completions not taken yet are dropped.
    fn destroy(&mut self, pair: Pair);

    /// Posts a receive; without a piece, for the immediate data of a write.
    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()>;

    /// Posts a message of one piece. Its completion is told.
    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()>;

    /// Posts an RDMA write of one piece. Its completion is told.
    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: Remote,
        immediate: Option<u32>,
    ) -> Result<()>;

    /// Does what there is to do, within bounds, and appends completions in the order of each pair.
    fn turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()>;

    /// The next news.
    fn news(&mut self) -> Option<News>;

    /// When [`turn`](Carrier::turn) wants to be called, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;

    /// The descriptors to sleep on.
    fn sleepers<'a>(&'a self, on: &mut Vec<Sleeper<'a>>);

    /// Makes ready to sleep; false if there is something to do, so that a turn is due first.
    fn doze(&mut self) -> bool;

    /// It does its work while it [`sleep`](Carrier::sleep)s: who has several carriers sleeps with such a one.
    fn works_asleep(&self) -> bool {
        false
    }

    /// Sleeps until there is something to do, one of `others` is ready, or the time is over, and marks those that are ready. It
    /// may wake for nothing. [`doze`](Carrier::doze) must have said yes, and a turn is due afterwards.
    fn sleep(&self, others: &mut [Beside<'_>], timeout: Option<Duration>) -> Result<()> {
        let mut on = Vec::new();
        self.sleepers(&mut on);
        rest::poll(&on, others, timeout).map_err(|error| CarrierError::System {
            call: "poll",
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_counts_as_one_source() {
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
