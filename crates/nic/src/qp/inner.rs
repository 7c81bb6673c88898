//! What a queue pair holds behind its lock: queues, stream, and everything between post and completion.
//! It is plain data; the neighbours of this file are its methods, cut by direction and moment.
//! It refuses to lock anything itself.

use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use verbena_mem::Spend;
use verbena_stream::{Delivery, Outgoing, RnrRetry, Stream, Time};
use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Features, ReadV2Request, RnrTimer};
use verbena_wire::rdmap::{AtomicRequest, ReadRequest};

use super::holding::Holding;
use super::modify::Psns;
use super::outgo::Outgo;
use super::queue::Heads;
use super::register::Unregistered;
use super::snapshot::Snapshot;
use super::stage::Stage;
use super::touch::Touches;
use super::wait::{AnswerWait, Blocked};
use super::wqe::{Manner, Wqe};
use super::{Enabled, QpInit};
use crate::receive::Receive;
use crate::state::QpState;

/// What a queue pair has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received on the stream.
    pub bytes_in: u64,
    /// Bytes sent on the stream.
    pub bytes_out: u64,
    /// Payload bytes, both ways, that went straight between the carrier and registered memory (M20).
    pub bytes_direct: u64,
    /// Messages the peer sent us, delivered.
    pub messages_in: u64,
    /// Messages we began to send, those begun again included.
    pub messages_out: u64,
    /// Messages of the peer that found no receive.
    pub rnr_sent: u64,
    /// Requests of ours that found no receive.
    pub rnr_received: u64,
}

impl Counters {
    /// Bytes, both ways, that passed a buffer of ours: heads, trailers, and payload that was staged.
    pub fn bytes_copied(&self) -> u64 {
        self.bytes_in + self.bytes_out - self.bytes_direct
    }
}

/// A request of the peer that we owe an answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Owed {
    Read(Untagged, ReadRequest),
    ReadV2(Untagged, ReadV2Request),
    /// It was executed: the last is what the word held before.
    Atomic(Untagged, AtomicRequest, u64),
}

/// A read or an atomic of the peer that is executed, and whose response is not framed in full.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) owed: Owed,
    /// Bytes that later requests have changed since.
    pub(super) snapshot: Snapshot,
    /// One-touch memory that goes with the response (M9).
    #[serde(skip)]
    pub(super) spend: Option<Spend>,
}

/// What is being sent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Current {
    /// A part of the request that was begun last.
    Request(Outgoing),
    /// The answer to the oldest request of the peer.
    Answer(Response, Outgoing),
}

impl Current {
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Current::Request(_))
    }
}

/// Everything behind the lock. What moves with a connection (V1) is all but what is marked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inner {
    pub(super) state: QpState,
    pub(super) stream: Option<Stream>,
    /// Requests in posting order; the first `begun` of them have been begun.
    pub(super) sends: VecDeque<Wqe>,
    pub(super) begun: usize,
    /// Requests that have completed: what the front of `sends` is numbered.
    pub(super) completed: u64,
    /// Where posters leave requests.
    #[serde(skip)]
    pub(super) heads: Heads,
    pub(super) claimed: Option<Receive>,
    /// The shared receive queue keeps a receive for us.
    #[serde(skip)]
    pub(super) promised: bool,
    /// A receive of the shared queue is held for the peer.
    #[serde(skip)]
    pub(super) holding: Option<Holding>,
    pub(super) owed: VecDeque<Response>,
    pub(super) current: Option<Current>,
    /// Received and not yet understood.
    pub(super) stage: Stage,
    /// Long runs of payload came a moment ago, and the next one probably is, too; counts down.
    pub(super) bulk: u8,
    /// Framed and not yet accepted.
    pub(super) outgo: Outgo,
    /// Stream bytes framed and accepted so far.
    pub(super) framed: u64,
    pub(super) accepted: u64,
    /// Where the next response identifier comes from.
    pub(super) next_id: u32,
    /// The stream is not read further: a message of a standard peer waits for a receive, a request for its memory or for
    /// responses to leave.
    pub(super) blocked: Option<Blocked>,
    /// A request that has arrived in full and waits with the stream.
    pub(super) deferred: Option<Box<Delivery>>,
    /// The oldest answer waits behind a request that cannot go on.
    pub(super) answer_wait: AnswerWait,
    /// One-touch memory that is being touched (M9).
    #[serde(skip)]
    pub(super) touches: Touches,
    /// The latest moment anybody told us of.
    pub(super) now: Time,
    /// The peer is gone; nothing that needs it can succeed.
    pub(super) gone: bool,
    /// The request with this number cannot go on and fails when all before it have ended.
    pub(super) doomed: Option<u64>,
    /// A draining queue finishes the requests before this one: those that had begun when it was told to drain.
    pub(super) drain_to: u64,
    /// `SqDrained` has been told since the queue began to drain.
    pub(super) drained: bool,
    /// The last message of an unreliable peer was a Write that memory refused.
    pub(super) write_dropped: bool,
    /// Messages of an unreliable peer that memory refused. Whoever moves begins anew: a peer cannot bring that about.
    #[serde(skip)]
    pub(super) refusals: u8,
    /// `LastWqe` has been told.
    pub(super) last_wqe_told: bool,
    pub(super) enabled: Enabled,
    pub(super) rnr_timer: RnrTimer,
    /// How long requests that a lost peer owes an answer go on waiting before they fail.
    pub(super) grace: Duration,
    /// The consumer does not notice that the peer is gone until it needs it: its connection stays, and runs the timer then.
    pub(super) stays: bool,
    /// They do, until then.
    pub(super) mourns_until: Option<Time>,
    pub(super) psns: Option<Psns>,
    /// What the peer's capabilities must prove; none once they have.
    pub(super) proof: Option<u64>,
    /// The same for a stream that fails if they do not, as any other stream fails. Not moved: a peer that has yet to prove it
    /// keeps its queue pair where it is.
    #[serde(skip)]
    pub(super) demanded: Option<u64>,
    /// The consumer's word on receivers that are not ready, and on reads at once.
    pub(super) rnr_retry: Option<RnrRetry>,
    pub(super) read_depth: Option<u16>,
    /// The peer takes atomics and immediate data.
    pub(super) rfc7306: bool,
    /// The last thing begun was an answer, so a request comes next.
    pub(super) answered_last: bool,
    pub(super) cause: Option<String>,
    /// The last registration that could not be executed, and may be tried again (M4).
    #[serde(skip)]
    pub(super) unregistered: Option<(u64, Unregistered)>,
    pub(super) counters: Counters,
    /// The peer is gone, by reset or not, behind a message that waits for a receive.
    pub(super) ending: Option<bool>,
    /// A frame was begun that cannot be finished: the connection can only be broken off.
    pub(super) severed: bool,
    /// What the connection of a stream that is over carries before it is closed.
    #[serde(skip)]
    pub(super) parting: Vec<u8>,
    /// Those are the stream's last words: nothing is framed behind them.
    #[serde(skip)]
    pub(super) parted: bool,
    /// The queue pair is destroyed; whoever still holds it can do nothing with it.
    pub(super) retired: bool,
}

impl Inner {
    pub(super) fn new(heads: Heads) -> Inner {
        Inner {
            state: QpState::Reset,
            stream: None,
            sends: VecDeque::new(),
            begun: 0,
            completed: 0,
            heads,
            claimed: None,
            promised: false,
            holding: None,
            owed: VecDeque::new(),
            current: None,
            stage: Stage::default(),
            bulk: 0,
            outgo: Outgo::default(),
            framed: 0,
            accepted: 0,
            next_id: 1,
            blocked: None,
            deferred: None,
            answer_wait: AnswerWait::No,
            touches: Touches::default(),
            now: Time::ZERO,
            gone: false,
            doomed: None,
            drain_to: 0,
            drained: false,
            write_dropped: false,
            refusals: 0,
            last_wqe_told: false,
            enabled: Enabled::default(),
            rnr_timer: RnrTimer::DEFAULT,
            grace: Duration::ZERO,
            mourns_until: None,
            stays: false,
            psns: None,
            proof: None,
            demanded: None,
            rnr_retry: None,
            read_depth: None,
            rfc7306: false,
            answered_last: false,
            cause: None,
            unregistered: None,
            counters: Counters::default(),
            ending: None,
            severed: false,
            parting: Vec::new(),
            parted: false,
            retired: false,
        }
    }

    /// As if it had just been made, but for its counters; what was posted is dropped without a completion.
    pub(super) fn renew(&mut self) {
        while self.heads.next_send().is_some() {
            self.heads.ended(1);
        }
        while self.heads.next_receive().is_some() {}
        self.begin_anew();
    }

    /// As if it had just been made, but for its counters and for requests that were left and not yet found. Its function adds
    /// up what went through it (V1), so nothing that was counted is forgotten.
    pub(super) fn begin_anew(&mut self) {
        self.heads.ended(self.sends.len());
        let counters = self.counters;
        *self = Inner::new(core::mem::take(&mut self.heads));
        self.counters = counters;
    }

    /// How the peer of the stream wants things.
    pub(super) fn manner(&self) -> Manner {
        let has = |feature| self.stream.as_ref().is_some_and(|s| s.has(feature));
        Manner {
            read_v2: has(Features::READ_V2),
            send_imm: has(Features::SEND_IMM),
        }
    }
}

impl QpInit {
    /// Removes the completions that wait to be polled, of this queue pair and no other. A receive of a shared queue whose
    /// completion is removed is consumed.
    ///
    /// A queue that feeds a shared send queue (V6) keeps them: they are the outcome of requests that complete elsewhere.
    pub(super) fn remove_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq] {
            if !cq.is_feeding() {
                cq.forget(self.name);
            }
        }
    }
}
