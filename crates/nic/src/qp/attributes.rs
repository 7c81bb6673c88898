//! Attributes of a queue pair that its program or its connection manager sets, and what the peer must show before it is trusted.
//! They are plain data: what has to follow from a change is done by the caller.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use verbena_stream::RnrRetry;
use verbena_wire::ext::RnrTimer;
use verbena_wire::number::Psn;

use super::QpAccessFlags;

/// The first packet sequence numbers of the two directions, as exchanged out of band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Psns {
    /// Ours.
    pub send: Psn,
    /// The peer's.
    pub receive: Psn,
}

/// Attributes that may change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Attributes {
    /// What the peer may do.
    pub(super) enabled: QpAccessFlags,
    /// How long a peer is told to wait when no receive is posted.
    pub(super) rnr_timer: RnrTimer,
    /// The program's settings for receivers that are not ready, and for outstanding reads.
    pub(super) rnr_retry: Option<RnrRetry>,
    pub(super) read_depth: Option<u16>,
    /// How long requests that wait for a lost peer's answer go on waiting before they fail.
    pub(super) grace: Duration,
    pub(super) psns: Option<Psns>,
    /// The peer supports atomics and immediate data.
    pub(super) rfc7306: bool,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            enabled: QpAccessFlags::default(),
            rnr_timer: RnrTimer::DEFAULT,
            rnr_retry: None,
            read_depth: None,
            grace: Duration::ZERO,
            psns: None,
            rfc7306: false,
        }
    }
}

/// What the capabilities of the stream's peer must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Authentication {
    /// Nothing, or they have shown it.
    #[default]
    Done,
    /// This nonce; otherwise the stream is dropped as if it had never been attached.
    Expected(u64),
    /// This nonce; otherwise the stream fails like any other.
    Required(u64),
}

impl Authentication {
    /// The peer has shown this nonce; false if it is not the right one.
    pub(super) fn accepts(self, shown: u64) -> bool {
        match self {
            Authentication::Done => true,
            Authentication::Expected(nonce) | Authentication::Required(nonce) => nonce == shown,
        }
    }
}
