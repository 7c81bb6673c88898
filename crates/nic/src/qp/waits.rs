//! What a queue pair waits for at one moment, for a reader that asks (N1): its oldest request, a receiver that is not ready, a message that found no
//! receive. It is taken together with the other attributes under the lock, and changes nothing.

use verbena_stream::{Time, requester, responder};

use super::failure::RequestInfo;
use super::inner::Inner;
use super::receive_state::BlockReason;

/// What a queue pair waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// The oldest send request that has not ended.
    pub oldest: Option<RequestInfo>,
    /// Send requests that were begun and have not ended.
    pub begun: usize,
    /// Bytes of frames that the connection has not taken yet.
    pub unsent: u64,
    /// The peer has reported that it has no receive.
    pub rnr: Option<RnrWait>,
    /// The peer's next message is not processed.
    pub blocked: Option<Blocked>,
    /// Requests wait for a lost peer until then.
    pub grace_until: Option<Time>,
    /// Since when packets are unacknowledged, over RoCEv2.
    pub unanswered_since: Option<Time>,
    /// Packets sent again, and repetitions after silence, over RoCEv2.
    pub repeated: (u64, u64),
}

/// A wait for a receive of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RnrWait {
    /// When the peer reported it for this request first.
    pub since: Option<Time>,
    /// When the request fails, or is sent again over RoCEv2; `None`: it waits for ever.
    pub until: Option<Time>,
    /// Retries that are left, over RoCEv2; `None` for no limit.
    pub retries_left: Option<u8>,
}

/// Why the peer's next message is not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// It needs a receive, and none is posted.
    Receive,
    /// It changes memory of responses that the peer has not taken.
    Responses,
    /// It needs memory whose registration is not done.
    Memory,
    /// It is for a shared receive queue of another process, which has not answered.
    Process,
}

impl Blocked {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Blocked::Receive => "receive",
            Blocked::Responses => "responses",
            Blocked::Memory => "memory",
            Blocked::Process => "process",
        }
    }
}

impl Inner {
    /// What it waits for.
    pub(super) fn waits(&self) -> Waits {
        let mut waits = Waits {
            oldest: self.sends.oldest_unfinished(),
            begun: self.sends.begun(),
            unsent: self
                .transmit
                .framed()
                .saturating_sub(self.transmit.accepted()),
            blocked: self.receive.blocked().map(|blocked| match blocked.reason {
                BlockReason::Receive => Blocked::Receive,
                BlockReason::Responses { .. } => Blocked::Responses,
                BlockReason::Memory(..) => Blocked::Memory,
                BlockReason::Process => Blocked::Process,
            }),
            grace_until: self.link.grace_ends(),
            ..Waits::default()
        };
        if let Some(stream) = self.wire.stream() {
            let requester = &stream.accounting().requester;
            if stream.accounting().responder.state() == responder::State::Waiting {
                waits.blocked = Some(Blocked::Receive);
            }
            let is_paused = requester.state() == requester::State::Paused;
            waits.rnr = is_paused.then(|| RnrWait {
                since: requester.paused_since(),
                until: requester.deadline(),
                retries_left: None,
            });
        }
        if let Some(roce) = self.wire.roce() {
            let requester = roce.requester();
            let counters = requester.counters();
            waits.rnr = requester.rnr_wait().map(|(until, retries_left)| RnrWait {
                since: None,
                until: Some(until),
                retries_left,
            });
            waits.unanswered_since = requester.unanswered_since();
            waits.repeated = (counters.repeated, counters.timeouts);
        }
        waits
    }
}
