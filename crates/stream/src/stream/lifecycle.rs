//! The states of a stream after startup, with all transitions in [`State::next`].
//! What is sent and received in each is decided in `receive` and `transmit`; the stream keeps the violation that ended it.

use serde::{Deserialize, Serialize};

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing may be sent yet but the first message (RFC 5044 §7.1.2).
    Opening,
    /// Messages are sent and received.
    Running,
    /// The peer broke a rule; everything received is dropped. The Terminate is queued, behind the responses that
    /// [`owes_responses`](crate::Stream::owes_responses) counts.
    Failing,
    /// The Terminate was framed; nothing else is sent.
    Terminated,
    /// The peer sent a Terminate; nothing more is sent or received.
    PeerTerminated,
    /// The peer closed its direction.
    Ended,
}

/// Events of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer's first FPDU is valid.
    Opened,
    /// A violation, or an abort by this side.
    Violation,
    /// The Terminate has been framed, or none can be sent.
    TerminateSent,
    /// The peer's Terminate arrived.
    TerminateReceived,
    /// The peer closed its direction.
    Eof,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 6] = [
        State::Opening,
        State::Running,
        State::Failing,
        State::Terminated,
        State::PeerTerminated,
        State::Ended,
    ];

    /// Frames are processed and messages may be delivered.
    pub fn is_open(self) -> bool {
        matches!(self, State::Opening | State::Running)
    }

    /// The state after `event`; `None` when it has no effect here.
    pub fn next(self, event: Event) -> Option<State> {
        use State as S;
        match (self, event) {
            (S::Opening, Event::Opened) => Some(S::Running),
            (S::Opening | S::Running, Event::Violation) => Some(S::Failing),
            (S::Opening | S::Running, Event::TerminateReceived) => Some(S::PeerTerminated),
            (S::Opening | S::Running, Event::Eof) => Some(S::Ended),
            (S::Failing, Event::TerminateSent) => Some(S::Terminated),
            _ => None,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 5] = [
        Event::Opened,
        Event::Violation,
        Event::TerminateSent,
        Event::TerminateReceived,
        Event::Eof,
    ];
}
