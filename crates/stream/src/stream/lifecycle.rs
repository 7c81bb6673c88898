//! The life of a stream, from startup's end to silence.
//! All transitions are in one function; what they mean for bytes is decided by its neighbours `receive` and `transmit`.
//! It refuses to know why: the cause is kept by the stream.

use serde::{Deserialize, Serialize};

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing may be sent yet but what opens the stream (RFC 5044 §7.1.2).
    Opening,
    /// Messages flow both ways.
    Running,
    /// The peer broke a rule; everything received is dropped. Our Terminate waits to leave, behind the answers that
    /// [`owes_answers`](crate::Stream::owes_answers) counts.
    Failing,
    /// Our Terminate has left; nothing else will.
    Terminated,
    /// The peer sent a Terminate; nothing more is sent or received.
    PeerTerminated,
    /// The peer closed its direction.
    Ended,
}

/// What can happen to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer's first FPDU is good.
    Opened,
    /// A rule was broken, by the peer or against it.
    Violation,
    /// Our Terminate has been framed, or none can be sent.
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

    /// Frames are still judged and messages may still come.
    pub fn is_open(self) -> bool {
        matches!(self, State::Opening | State::Running)
    }

    /// The state after `event`; `None` when it has no meaning here.
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
