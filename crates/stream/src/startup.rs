//! MPA startup (RFC 5044 §7.1, RFC 6581): one Request, one Reply, and what both sides agreed on.
//! An [`Endpoint`] takes bytes, decisions and the time, and yields bytes to send and one final [`Outcome`].
//! For a fallback to revision 1 the caller opens another connection.

mod agreement;
mod initiator;
mod responder;
mod state;
mod terms;

pub use agreement::{Agreement, Role, Rtr};
pub use state::{Event, State};
pub use terms::Terms;

use verbena_wire::mpa::startup::{
    Frame, HEADER_LEN, Kind, MAX_PRIVATE_DATA, Revision, StartupError,
};
use verbena_wire::rdmap::LlpError;

use crate::time::Time;

/// Longest startup frame, and the most that is buffered of an unfinished startup.
pub const MAX_FRAME: usize = HEADER_LEN + MAX_PRIVATE_DATA;

/// One side of an MPA startup.
///
/// Call [`Endpoint::initiator`] or [`Endpoint::responder`]; then, in any order and as things happen,
/// [`handle_bytes`](Endpoint::handle_bytes), [`handle_eof`](Endpoint::handle_eof) and
/// [`handle_timeout`](Endpoint::handle_timeout); send what [`poll_transmit`](Endpoint::poll_transmit) returns.
/// A responder that reaches [`State::Deciding`] waits for [`accept`](Endpoint::accept) or
/// [`reject`](Endpoint::reject). When [`state`](Endpoint::state) is final, [`into_outcome`](Endpoint::into_outcome)
/// gives the result by value.
#[derive(Debug)]
pub struct Endpoint {
    role: Role,
    terms: Terms,
    state: State,
    deadline: Time,
    /// The peer's frame as far as it arrived; never longer than [`MAX_FRAME`].
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    outcome: Option<Outcome>,
}

/// How a startup ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides agreed: the stream begins with the next byte.
    Established(Agreement),
    /// The peer rejected (initiator).
    Rejected {
        /// The private data of the Reply.
        private_data: Vec<u8>,
    },
    /// The local upper layer rejected (responder).
    Refused,
    /// The startup failed.
    Failed {
        /// Why.
        reason: Failure,
        /// Another connection at this revision may succeed: some peers drop a revision-2 Request (RFC 6581 §6).
        retry: Option<Revision>,
    },
}

/// Why a startup failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer's frame is not a valid startup frame.
    #[error("startup frame: {0}")]
    Frame(#[from] StartupError),
    /// The peer sent bytes behind its Request before it had the Reply (RFC 5044 §7.1.2).
    #[error("{0} bytes behind the Request, before the Reply")]
    EarlyBytes(usize),
    /// The Reply has another revision than the Request.
    #[error("reply of another revision")]
    RevisionChanged,
    /// The peer needs more inbound reads than this side can serve (RFC 6581 §9.1).
    #[error("peer wants {wanted} outstanding reads, limit is {limit}")]
    InsufficientIrd {
        /// What the peer's ORD needs.
        wanted: u16,
        /// What this side can serve.
        limit: u16,
    },
    /// No ready-to-receive message that both sides support (RFC 6581 §9.2).
    #[error("no common ready-to-receive message")]
    NoCommonRtr,
    /// The deadline passed.
    #[error("timed out")]
    Timeout,
    /// The connection was closed before the startup ended.
    #[error("connection closed during startup")]
    Closed,
}

/// A call that the endpoint's state does not allow. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// No Request waits for a decision.
    #[error("no request is waiting for a decision (state {0:?})")]
    NotDeciding(State),
    /// The private data does not fit the frame.
    #[error("private data: {0}")]
    PrivateData(#[from] StartupError),
}

impl Endpoint {
    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// When [`handle_timeout`](Endpoint::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Time> {
        (!self.state.is_final()).then_some(self.deadline)
    }

    /// The result, once the state is final.
    pub fn into_outcome(self) -> Option<Outcome> {
        self.outcome
    }

    /// Bytes to send now; empty when there are none.
    pub fn poll_transmit(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.outbox)
    }

    /// Takes bytes from the peer and returns how many belonged to the startup.
    ///
    /// The bytes that an initiator does not take follow the Reply and are the stream's first input.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::AwaitReply => self.collect_frame(Kind::Reply, bytes),
            State::AwaitRequest => self.collect_frame(Kind::Request, bytes),
            // RFC 5044 §7.1.2: the initiator sends nothing until it has the Reply.
            State::Deciding if !bytes.is_empty() => {
                self.fail(Event::FrameBad, Failure::EarlyBytes(bytes.len()));
                bytes.len()
            }
            _ => 0,
        }
    }

    /// The peer closed or reset the connection.
    pub fn handle_eof(&mut self) {
        self.fail(Event::Closed, Failure::Closed);
    }

    /// Fails the startup if its deadline has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if now >= self.deadline {
            self.fail(Event::Deadline, Failure::Timeout);
        }
    }

    /// Collects one frame, and parses it with every call so that an error is found as early as possible.
    fn collect_frame(&mut self, kind: Kind, bytes: &[u8]) -> usize {
        let before = self.inbox.len();
        let room = MAX_FRAME - before;
        let taken = bytes.len().min(room);
        self.inbox.extend(bytes.iter().take(taken));

        let inbox = core::mem::take(&mut self.inbox);
        let used = match Frame::parse(kind, &inbox) {
            Err(error) => {
                self.fail(Event::FrameBad, error.into());
                bytes.len()
            }
            Ok(None) => {
                self.inbox = inbox;
                return taken;
            }
            Ok(Some((frame, len))) => {
                let surplus = before + bytes.len() - len;
                match kind {
                    Kind::Reply => self.handle_reply(&frame),
                    Kind::Request if surplus > 0 => {
                        self.fail(Event::FrameBad, Failure::EarlyBytes(surplus));
                    }
                    Kind::Request => self.handle_request(&frame),
                }
                len - before
            }
        };
        used.min(bytes.len())
    }

    fn enter(&mut self, event: Event, outcome: Option<Outcome>) {
        if let Some(next) = self.state.next(event) {
            self.state = next;
            self.outcome = outcome;
        }
    }

    /// Ends the startup. An initiator may retry at revision 1 (RFC 6581 §6) if it got no part of a Reply, or one of another revision.
    fn fail(&mut self, event: Event, reason: Failure) {
        if self.state.is_final() {
            return;
        }
        let silent = self.state == State::AwaitReply && self.inbox.is_empty();
        let refused = matches!(
            reason,
            Failure::Closed | Failure::Timeout | Failure::RevisionChanged
        );
        let retry =
            (silent && refused && self.terms.revision == Revision::Two).then_some(Revision::One);
        self.enter(event, Some(Outcome::Failed { reason, retry }));
    }

    fn fail_with_terminate(&mut self, reason: Failure, error: LlpError, agreement: &Agreement) {
        let frame = agreement.startup_terminate(error);
        self.outbox.extend(frame);
        self.fail(Event::FrameBad, reason);
    }
}

#[cfg(test)]
mod tests;
