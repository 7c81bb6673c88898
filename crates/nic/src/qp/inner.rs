//! What a queue pair holds behind its lock: queues, stream, and everything between post and completion.
//! It is plain data; the neighbours of this file are its methods, cut by direction and moment.
//! It refuses to lock anything itself.

use std::collections::VecDeque;

use verbena_stream::{Outgoing, Stream, Time};
use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Features, ReadV2Request, RnrTimer};
use verbena_wire::rdmap::{AtomicRequest, ReadRequest};

use super::wqe::{Manner, Wqe};
use super::{Enabled, QpInit};
use crate::receive::{Receive, ReceiveQueue};
use crate::state::QpState;

/// What a queue pair has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes received and sent on the stream.
    pub bytes_in: u64,
    /// Bytes sent on the stream.
    pub bytes_out: u64,
    /// Messages the peer sent us, delivered.
    pub messages_in: u64,
    /// Messages we began to send, those begun again included.
    pub messages_out: u64,
    /// Messages of the peer that found no receive.
    pub rnr_sent: u64,
    /// Requests of ours that found no receive.
    pub rnr_received: u64,
}

/// A request of the peer that we owe an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owed {
    Read(Untagged, ReadRequest),
    ReadV2(Untagged, ReadV2Request),
    Atomic(Untagged, AtomicRequest),
}

/// What is being sent.
#[derive(Debug)]
pub(super) enum Current {
    /// A part of the request that was begun last.
    Request(Outgoing),
    /// The answer to the oldest request of the peer.
    Answer(Owed, Outgoing),
}

impl Current {
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Current::Request(_))
    }
}

/// A buffer larger than this is given back when it is empty: an idle queue pair holds no memory for data.
pub(super) const KEEP: usize = 1024;

/// Whole frames, of which the first `taken` bytes have been handed out.
#[derive(Debug, Default)]
pub(super) struct Outgo {
    pub(super) frames: Vec<u8>,
    taken: usize,
}

impl Outgo {
    pub(super) fn len(&self) -> usize {
        self.frames.len() - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out the next `n` bytes, or all there are; all of them at once cost no copy.
    pub(super) fn take(&mut self, n: usize) -> Vec<u8> {
        if self.taken == 0 && n >= self.frames.len() {
            return core::mem::take(&mut self.frames);
        }
        let end = self.frames.len().min(self.taken + n);
        let bytes = self.frames[self.taken..end].to_vec();
        self.taken = end;
        if self.is_empty() {
            self.taken = 0;
            empty(&mut self.frames);
        }
        bytes
    }
}

/// Empties a buffer and gives a large one back.
pub(super) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEEP {
        *buffer = Vec::new();
    }
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: QpState,
    pub(super) stream: Option<Stream>,
    /// Requests in posting order; the first `begun` of them have been begun.
    pub(super) sends: VecDeque<Wqe>,
    pub(super) begun: usize,
    pub(super) receives: ReceiveQueue,
    pub(super) claimed: Option<Receive>,
    pub(super) owed: VecDeque<Owed>,
    pub(super) current: Option<Current>,
    /// Received and not yet understood.
    pub(super) stage: Vec<u8>,
    /// Framed and not yet accepted.
    pub(super) outbox: Outgo,
    /// Stream bytes framed and accepted so far.
    pub(super) framed: u64,
    pub(super) accepted: u64,
    /// Where the next response identifier comes from.
    pub(super) next_id: u32,
    /// A message of a standard peer waits for a receive until then.
    pub(super) blocked: Option<Time>,
    /// The latest moment anybody told us of.
    pub(super) now: Time,
    /// The peer is gone; nothing that needs it can succeed.
    pub(super) gone: bool,
    /// `SqDrained` has been told since the queue began to drain.
    pub(super) drained: bool,
    /// The last message of an unreliable peer was a Write that memory refused.
    pub(super) write_dropped: bool,
    /// `LastWqe` has been told.
    pub(super) last_wqe_told: bool,
    pub(super) enabled: Enabled,
    pub(super) rnr_timer: RnrTimer,
    /// The peer takes atomics and immediate data.
    pub(super) rfc7306: bool,
    /// The last thing begun was an answer, so a request comes next.
    pub(super) answered_last: bool,
    pub(super) cause: Option<String>,
    pub(super) counters: Counters,
    /// The peer is gone, by reset or not, behind a message that waits for a receive.
    pub(super) ending: Option<bool>,
    /// The queue pair is destroyed; whoever still holds it can do nothing with it.
    pub(super) retired: bool,
}

impl Inner {
    pub(super) fn new(init: &QpInit) -> Inner {
        Inner {
            state: QpState::Reset,
            stream: None,
            sends: VecDeque::new(),
            begun: 0,
            receives: ReceiveQueue::new(init.limits.receives, init.limits.pieces),
            claimed: None,
            owed: VecDeque::new(),
            current: None,
            stage: Vec::new(),
            outbox: Outgo::default(),
            framed: 0,
            accepted: 0,
            next_id: 1,
            blocked: None,
            now: Time::ZERO,
            gone: false,
            drained: false,
            write_dropped: false,
            last_wqe_told: false,
            enabled: Enabled::default(),
            rnr_timer: RnrTimer::DEFAULT,
            rfc7306: false,
            answered_last: false,
            cause: None,
            counters: Counters::default(),
            ending: None,
            retired: false,
        }
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
