//! Queries of a queue pair, its failure by an overflow, and its destruction.
//! A view is one consistent state (N1), and a destroyed queue pair completes nothing more.

use super::inner::{Counters, Inner};
use super::link_state::LinkEvent;
use super::{Qp, QpAccessFlags, RegisterError};
use verbena_stream::{Stream, Time};

use crate::state::QpState;
use verbena_events::event::Outbox;

/// The changing attributes of a queue pair, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its state.
    pub state: QpState,
    /// What the peer may do.
    pub enabled: QpAccessFlags,
    /// Why it failed, in one sentence.
    pub cause: Option<String>,
    /// The last request whose registration failed and may be tried again, and why it failed (M4).
    pub register_error: Option<(u64, RegisterError)>,
    /// Its counters.
    pub counters: Counters,
    /// The peer has closed its direction, or is lost.
    pub peer_disconnected: bool,
    /// Send requests that have not completed.
    pub sends: usize,
    /// Receives of its own that have not completed.
    pub receives: usize,
}

/// What the code that drives the connection must know after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnStatus {
    /// When to call [`handle_timeout`](Qp::handle_timeout).
    pub deadline: Option<Time>,
    /// What to do with the connection.
    pub action: ConnectionAction,
    /// Requests wait for an answer of the peer.
    pub awaits_peer: bool,
    /// Bytes sent on the stream so far, whose TCP acknowledgement is expected.
    pub sent: u64,
    /// The queue pair is closing or has failed: a peer that does not read its last frames must not keep it.
    pub closing: bool,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Keep it.
    Open,
    /// Nothing more will be sent: close it, and read to the end.
    Close,
    /// Abort it: the peer has the beginning of a frame whose rest is lost.
    Reset,
}

impl Qp {
    /// The changing attributes, at one moment.
    pub fn view(&self) -> View {
        self.lock.read(|inner| {
            let (sends, receives) = self.count_outstanding(inner);
            View {
                state: inner.state,
                enabled: inner.attributes.enabled,
                cause: inner.cause.clone(),
                register_error: inner.sends.register_error(),
                counters: inner.counters,
                peer_disconnected: inner.link.is_gone(),
                sends,
                receives,
            }
        })
    }

    /// A completion queue of this queue pair lost entries: it fails.
    pub fn fail_overflowed(&self, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| {
            if inner.state == QpState::Reset {
                // None of its completions can have been lost, and nothing is in progress.
                return;
            }
            inner.fail_cq_overflow(init, out);
            if !inner.state.flushes() {
                // Not connected: there is no stream to end, only receives to flush.
                inner.modify(init, QpState::Err, out);
            }
        });
    }

    /// Ends the connection in good order, and flushes what is not done. An `iwarp` queue pair with nothing to send closes
    /// gracefully; otherwise the bytes that the connection should still send before it is closed are returned.
    pub fn disconnect(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.run_locked(out, Inner::disconnect)
    }

    /// Its stream has ended with a local Terminate.
    pub fn has_terminated(&self) -> bool {
        use verbena_stream::stream::State;
        let terminated = |inner: &Inner| {
            let state = inner.stream.as_ref().map(Stream::state);
            state == Some(State::Terminated)
        };
        self.lock.read(terminated)
    }

    /// The connection is about to be closed, after [`ConnectionAction::Close`]: the bytes to send before that.
    pub fn closing_bytes(&self, out: &mut Outbox) -> Vec<u8> {
        self.run_locked(out, |inner, _, _| inner.closing_bytes())
    }

    /// Ends the queue pair for good: nothing completes any more, and it leaves the line of its shared receive queue.
    ///
    /// Returns the bytes its connection should still send before it is closed: the rest of a frame that the peer has
    /// in part, and acknowledgements that it waits for. `None` if it was retired before.
    pub fn retire(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.run_locked(out, |inner, init, out| {
            if inner.link.is_retired() {
                return None;
            }
            let last = inner.take_final_bytes(init);
            inner.return_receives(init, out);
            inner.reset();
            inner.transmit.end(last.clone());
            inner.link.handle(LinkEvent::Retire);
            Some(last)
        })
    }
}

impl Inner {
    /// Requests wait for an answer of the peer, or for its first frame before they can begin.
    pub(super) fn awaits_peer(&self) -> bool {
        self.sends.begun() > 0 || self.state == QpState::Rts && !self.sends.is_empty()
    }

    pub(super) fn turn_status(&self) -> TurnStatus {
        let future = if self.link.is_severed() {
            ConnectionAction::Reset
        } else if self.stream.is_none() || self.wants_close() {
            // A queue pair that was reset has dropped its stream.
            ConnectionAction::Close
        } else {
            ConnectionAction::Open
        };
        TurnStatus {
            deadline: self.deadline(),
            action: future,
            awaits_peer: self.awaits_peer(),
            sent: self.counters.bytes_out,
            closing: self.state.flushes(),
        }
    }
}
