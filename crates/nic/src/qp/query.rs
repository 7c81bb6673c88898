//! A queue pair seen from its function: what a query answers, how an overflow strikes it, and how it is destroyed.
//! It promises one consistent look at everything that changes (N1), and that a destroyed queue pair completes nothing more.
//! It refuses to know the tables that name it.

use super::inner::{Counters, Inner};
use super::{Enabled, Qp, Unregistered};
use verbena_stream::{Stream, Time};

use crate::event::Outbox;
use crate::state::QpState;

/// What of a queue pair changes while it lives, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Where it stands.
    pub state: QpState,
    /// What the peer may do.
    pub enabled: Enabled,
    /// Why it failed, in one sentence.
    pub cause: Option<String>,
    /// The last request whose registration failed so that it may be tried again, and why it did (M4).
    pub unregistered: Option<(u64, Unregistered)>,
    /// What it has done.
    pub counters: Counters,
    /// The peer has closed its direction, or is lost.
    pub peer_gone: bool,
    /// Send requests that have not completed.
    pub sends: usize,
    /// Receives of its own that have not completed.
    pub receives: usize,
}

/// What whoever drives the connection must know after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// When [`handle_timeout`](Qp::handle_timeout) wants to be called.
    pub deadline: Option<Time>,
    /// Whether the connection is wanted any longer.
    pub future: Future,
    /// Requests wait for an answer of the peer.
    pub awaits_peer: bool,
    /// Bytes sent on the stream so far: the peer's TCP owes an acknowledgement of the last ones, or did.
    pub sent: u64,
    /// The queue pair has failed, and its last words have not left yet: a peer that does not read must not hold it.
    pub dying: bool,
}

/// Whether a connection is wanted any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Future {
    /// It goes on.
    Open,
    /// Nothing more will be sent: close it, and hear the peer out.
    Close,
    /// Break it off: the peer has the beginning of a frame whose rest is gone.
    Reset,
}

impl Qp {
    /// Everything that changes, at one moment.
    pub fn view(&self) -> View {
        self.desk.look(|inner| {
            let (sends, receives) = self.count(inner);
            View {
                state: inner.state,
                enabled: inner.enabled,
                cause: inner.cause.clone(),
                unregistered: inner.unregistered,
                counters: inner.counters,
                peer_gone: inner.gone,
                sends,
                receives,
            }
        })
    }

    /// A completion queue of this queue pair lost entries: whatever it is doing cannot be relied on.
    pub fn fail_overflowed(&self, out: &mut Outbox) {
        self.attend(out, |inner, init, out| {
            if inner.state == QpState::Reset {
                // Nothing of it can have been lost, and nothing is under way.
                return;
            }
            inner.overflowed(init, out);
            if !inner.state.flushes() {
                // Not connected: there is no stream to end, only receives to flush.
                inner.modify(init, QpState::Err, out);
            }
        });
    }

    /// Ends the connection in good order, and flushes what is not done. An `iwarp` queue pair with nothing to send closes
    /// gracefully; otherwise the bytes that the connection should still carry before it is closed are returned.
    pub fn hang_up(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.attend(out, Inner::hang_up)
    }

    /// Its stream has ended with our Terminate.
    pub fn has_terminated(&self) -> bool {
        use verbena_stream::stream::State;
        let terminated = |inner: &Inner| {
            let state = inner.stream.as_ref().map(Stream::state);
            state == Some(State::Terminated)
        };
        self.desk.look(terminated)
    }

    /// The connection is about to be closed, since [`Future::Close`] said so: what it should carry before that.
    pub fn closing_words(&self, out: &mut Outbox) -> Vec<u8> {
        self.attend(out, |inner, _, _| inner.closing_words())
    }

    /// Ends the queue pair for good: nothing completes any more, and it leaves the line of its shared receive queue.
    ///
    /// Returns the bytes its connection should still carry before it is closed: the rest of a frame that the peer has
    /// in part, and acknowledgements that it waits for. `None` if it was retired before.
    pub fn retire(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.attend(out, |inner, init, out| {
            if inner.retired {
                return None;
            }
            let last = inner.last_words(init);
            inner.give_back(init, out);
            inner.renew();
            inner.part(last.clone());
            inner.retired = true;
            Some(last)
        })
    }
}

impl Inner {
    /// Requests wait for an answer of the peer, or for its first frame before they can begin.
    pub(super) fn awaits_peer(&self) -> bool {
        self.begun > 0 || self.state == QpState::Rts && !self.sends.is_empty()
    }

    pub(super) fn outlook(&self) -> Outlook {
        let future = if self.severed {
            Future::Reset
        } else if self.stream.is_none() || self.wants_close() {
            // A queue pair that was emptied has let go of its stream without a word.
            Future::Close
        } else {
            Future::Open
        };
        Outlook {
            deadline: self.deadline(),
            future,
            awaits_peer: self.awaits_peer(),
            sent: self.counters.bytes_out,
            dying: self.state.flushes(),
        }
    }
}
