//! The connection of a queue pair, over a stream or RoCEv2, and what it adds to a description of the queue pair.
//! Numbers are read from the kernel and the connection when a description is asked for; nothing is counted for it.

use core::time::Duration;
use std::sync::Arc;

use verbena_stream::Time;

use crate::connection::Connection;
use crate::roce::connection::RoceConnection;
use crate::sys::TcpNumbers;

/// The connection of a queue pair.
pub(super) enum Link {
    Stream(Arc<Connection>),
    Roce(Arc<RoceConnection>),
}

impl Link {
    /// A queue pair has one of them at most.
    pub(super) fn new(
        stream: Option<Arc<Connection>>,
        roce: Option<Arc<RoceConnection>>,
    ) -> Option<Link> {
        stream.map(Link::Stream).or(roce.map(Link::Roce))
    }
}

/// What the connection of a queue pair adds.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkNumbers {
    /// How long the peer has made no progress, while something is outstanding.
    pub(super) idle: Option<Duration>,
    /// Bytes that the peer's side of the connection has not taken: its TCP, or its process for shared memory.
    pub(super) untaken: u64,
    pub(super) tcp: Option<TcpNumbers>,
}

impl LinkNumbers {
    pub(super) fn of(link: &Link, now: Time) -> LinkNumbers {
        let Link::Stream(connection) = link else {
            return LinkNumbers::default();
        };
        LinkNumbers {
            idle: connection.stalled_since().map(|since| now.since(since)),
            untaken: connection.untaken(),
            tcp: connection.transport().socket().numbers(),
        }
    }

    /// Fields of the line of the queue pair.
    pub(super) fn fields(&self) -> [(&'static str, String); 2] {
        let tcp = self.tcp.unwrap_or_default();
        [
            ("retransmitted", tcp.retransmitted.to_string()),
            ("stalled_us", tcp.window_limited.as_micros().to_string()),
        ]
    }
}
