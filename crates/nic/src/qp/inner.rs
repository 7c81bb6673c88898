//! The state of a queue pair behind its lock: queues, stream, and everything between post and completion.
//! It is plain data; its methods are in the other files of this folder, by direction and stage of a request.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use verbena_stream::{Delivery, RnrRetry, Stream, Time};
use verbena_wire::ext::{Features, RnrTimer};

use super::link_state::LinkState;
use super::modify::Psns;
use super::queue::Heads;
use super::responder::Responder;
use super::send_buffer::SendBuffer;
use super::send_queue::SendQueue;
use super::srq_hold::SrqHold;
use super::stage::Stage;
use super::touch::Touching;
use super::wait::Blocked;
use super::wqe::PeerFeatures;
use super::{QpAccessFlags, QpInit};
use crate::receive::Receive;
use crate::state::QpState;

/// Counters of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received on the stream.
    pub bytes_in: u64,
    /// Bytes sent on the stream.
    pub bytes_out: u64,
    /// Payload bytes, both ways, that were transferred directly between the carrier and registered memory (M20).
    pub bytes_direct: u64,
    /// Messages of the peer that were delivered.
    pub messages_in: u64,
    /// Messages begun, those begun again included.
    pub messages_out: u64,
    /// Messages of the peer that found no receive.
    pub rnr_sent: u64,
    /// Local requests that found no receive.
    pub rnr_received: u64,
}

impl Counters {
    /// Bytes, both ways, that passed a buffer: headers, trailers, and payload that was staged.
    pub fn bytes_copied(&self) -> u64 {
        self.bytes_in + self.bytes_out - self.bytes_direct
    }
}

/// Everything behind the lock. All of it moves with a connection (V1), except fields marked `serde(skip)`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inner {
    pub(super) state: QpState,
    pub(super) stream: Option<Stream>,
    pub(super) sends: SendQueue,
    /// The consuming ends of the work queues.
    #[serde(skip)]
    pub(super) heads: Heads,
    pub(super) claimed: Option<Receive>,
    /// The shared receive queue has reserved a receive for this queue pair.
    #[serde(skip)]
    pub(super) reserved: bool,
    /// A receive of the shared queue is held for the peer.
    #[serde(skip)]
    pub(super) srq_hold: Option<SrqHold>,
    pub(super) responder: Responder,
    /// Received and not yet parsed.
    pub(super) stage: Stage,
    /// Long runs of payload arrived recently, and the next one probably is long, too; counts down.
    pub(super) bulk: u8,
    /// Framed and not yet accepted.
    pub(super) send_buffer: SendBuffer,
    /// Stream bytes framed and accepted so far.
    pub(super) framed: u64,
    pub(super) accepted: u64,
    /// The stream is not read further: a message of a standard peer waits for a receive, a request for its memory or for
    /// responses to be sent.
    pub(super) blocked: Option<Blocked>,
    /// A request that has arrived in full and waits with the stream.
    pub(super) deferred: Option<Box<Delivery>>,
    /// The Write that is being received touches one-touch memory (M9).
    #[serde(skip)]
    pub(super) touches: Touching,
    /// The latest time that was passed in.
    pub(super) now: Time,
    /// What is left of the connection. Not moved: only an open one is.
    #[serde(skip)]
    pub(super) link: LinkState,
    /// The last message of an unreliable peer was a Write that memory refused.
    pub(super) write_dropped: bool,
    /// Messages of an unreliable peer that memory refused. Not moved: a peer cannot cause a move.
    #[serde(skip)]
    pub(super) refusals: u8,
    /// `LastWqe` has been raised.
    pub(super) last_wqe_raised: bool,
    pub(super) enabled: QpAccessFlags,
    pub(super) rnr_timer: RnrTimer,
    /// How long requests that wait for a lost peer's answer go on waiting before they fail.
    pub(super) grace: Duration,
    pub(super) psns: Option<Psns>,
    /// The nonce that the peer's capabilities must show; `None` once they have.
    pub(super) expected_nonce: Option<u64>,
    /// The same for a stream that fails like any other if they do not. Not moved: a queue pair cannot be moved before the peer has
    /// shown it.
    #[serde(skip)]
    pub(super) required_nonce: Option<u64>,
    /// The program's settings for receivers that are not ready, and for outstanding reads.
    pub(super) rnr_retry: Option<RnrRetry>,
    pub(super) read_depth: Option<u16>,
    /// The peer supports atomics and immediate data.
    pub(super) rfc7306: bool,
    pub(super) cause: Option<String>,
    pub(super) counters: Counters,
    /// Bytes that the connection of a stream that is over sends before it is closed.
    #[serde(skip)]
    pub(super) final_bytes: Vec<u8>,
    /// Those are the last bytes of the stream: nothing is framed after them.
    #[serde(skip)]
    pub(super) framing_ended: bool,
}

impl Inner {
    pub(super) fn new(heads: Heads) -> Inner {
        Inner {
            state: QpState::Reset,
            stream: None,
            sends: SendQueue::default(),
            heads,
            claimed: None,
            reserved: false,
            srq_hold: None,
            responder: Responder::default(),
            stage: Stage::default(),
            bulk: 0,
            send_buffer: SendBuffer::default(),
            framed: 0,
            accepted: 0,
            blocked: None,
            deferred: None,
            touches: Touching::No,
            now: Time::ZERO,
            link: LinkState::Open,
            write_dropped: false,
            refusals: 0,
            last_wqe_raised: false,
            enabled: QpAccessFlags::default(),
            rnr_timer: RnrTimer::DEFAULT,
            grace: Duration::ZERO,
            psns: None,
            expected_nonce: None,
            required_nonce: None,
            rnr_retry: None,
            read_depth: None,
            rfc7306: false,
            cause: None,
            counters: Counters::default(),
            final_bytes: Vec::new(),
            framing_ended: false,
        }
    }

    /// Resets everything but the counters; posted requests are dropped without a completion.
    pub(super) fn reset(&mut self) {
        while self.heads.next_send().is_some() {
            self.heads.ended(1);
        }
        while self.heads.next_receive().is_some() {}
        self.reset_keep_posted();
    }

    /// Resets everything but the counters and requests that were posted and not yet taken in. Its function sums up the
    /// counters (V1), so nothing that was counted is lost.
    pub(super) fn reset_keep_posted(&mut self) {
        self.heads.ended(self.sends.len());
        let counters = self.counters;
        *self = Inner::new(core::mem::take(&mut self.heads));
        self.counters = counters;
    }

    /// The features of the stream's peer that affect messages.
    pub(super) fn peer_features(&self) -> PeerFeatures {
        let has = |feature| self.stream.as_ref().is_some_and(|s| s.has(feature));
        PeerFeatures {
            read_v2: has(Features::READ_V2),
            send_imm: has(Features::SEND_IMM),
        }
    }
}

impl QpInit {
    /// Removes the completions of this queue pair that have not been polled. A receive of a shared queue whose
    /// completion is removed is consumed.
    ///
    /// A queue that feeds a shared send queue (V6) keeps them: they are the results of requests that complete elsewhere.
    pub(super) fn remove_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq] {
            if !cq.is_for_ssq() {
                cq.discard_qp_entries(self.wc_qpn);
            }
        }
    }
}
