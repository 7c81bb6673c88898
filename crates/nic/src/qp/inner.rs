//! The state of a queue pair behind its lock: queues, stream, and everything between post and completion.
//! It is plain data; its methods are in the other files of this folder, by direction and stage of a request.

use serde::{Deserialize, Serialize};
use verbena_stream::{Stream, Time};
use verbena_wire::ext::Features;

use super::QpInit;
use super::attributes::{Attributes, Authentication};
use super::link_state::LinkState;
use super::queue::Heads;
use super::receive_state::ReceiveState;
use super::responder::Responder;
use super::send_queue::SendQueue;
use super::transmit_buffer::TransmitBuffer;
use super::wqe::PeerFeatures;
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

/// Everything behind the lock: the parts, each of which owns its state, and what coordinates them. All of it moves with a connection
/// (V1), except fields marked `serde(skip)`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inner {
    pub(super) state: QpState,
    /// What is left of the connection. Not moved: only an open one is.
    #[serde(skip)]
    pub(super) link: LinkState,
    pub(super) stream: Option<Stream>,
    /// Not moved: a queue pair cannot be moved before the peer is authenticated.
    #[serde(skip)]
    pub(super) authentication: Authentication,
    pub(super) attributes: Attributes,
    /// The consuming ends of the work queues.
    #[serde(skip)]
    pub(super) heads: Heads,
    pub(super) sends: SendQueue,
    pub(super) transmit: TransmitBuffer,
    pub(super) receive: ReceiveState,
    pub(super) responder: Responder,
    /// The latest time that was passed in.
    pub(super) now: Time,
    /// Why the queue pair failed; the first cause.
    pub(super) cause: Option<String>,
    pub(super) counters: Counters,
}

impl Inner {
    pub(super) fn new(heads: Heads) -> Inner {
        Inner {
            state: QpState::Reset,
            link: LinkState::default(),
            stream: None,
            authentication: Authentication::default(),
            attributes: Attributes::default(),
            heads,
            sends: SendQueue::default(),
            transmit: TransmitBuffer::default(),
            receive: ReceiveState::default(),
            responder: Responder::default(),
            now: Time::ZERO,
            cause: None,
            counters: Counters::default(),
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
