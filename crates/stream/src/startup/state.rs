//! The states of a startup and the one function that moves between them.
//! It promises that every pair of state and event has an answer: a next state, or none because it cannot happen.
//! It refuses to know frames: callers judge what came and name it as an [`Event`].

/// Where a startup stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Initiator: the Request is out, the Reply has not come.
    AwaitReply,
    /// Responder: the Request has not come.
    AwaitRequest,
    /// Responder: a good Request waits for the upper layer's decision.
    Deciding,
    /// Agreed; the stream begins.
    Established,
    /// The peer said no.
    Rejected,
    /// We said no.
    Refused,
    /// Broken; close the connection.
    Failed,
}

/// What can happen to a startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer's frame is good.
    FrameGood,
    /// The peer's Reply says no.
    FrameRejects,
    /// The peer's frame is bad, or cannot be agreed with.
    FrameBad,
    /// The upper layer accepts.
    Accept,
    /// The upper layer refuses.
    Reject,
    /// The deadline passed.
    Deadline,
    /// The connection closed.
    Closed,
}

impl State {
    /// Every state, for tables.
    pub const ALL: [State; 7] = [
        State::AwaitReply,
        State::AwaitRequest,
        State::Deciding,
        State::Established,
        State::Rejected,
        State::Refused,
        State::Failed,
    ];

    /// No event moves a final state.
    pub fn is_final(self) -> bool {
        !matches!(
            self,
            State::AwaitReply | State::AwaitRequest | State::Deciding
        )
    }

    /// The state after `event`; `None` when the event has no meaning here and changes nothing.
    pub fn next(self, event: Event) -> Option<State> {
        use State as S;
        match (self, event) {
            (S::AwaitReply, Event::FrameGood) => Some(S::Established),
            (S::AwaitReply, Event::FrameRejects) => Some(S::Rejected),
            (S::AwaitRequest, Event::FrameGood) => Some(S::Deciding),
            (S::Deciding, Event::Accept) => Some(S::Established),
            (S::Deciding, Event::Reject) => Some(S::Refused),
            (
                S::AwaitReply | S::AwaitRequest | S::Deciding,
                Event::FrameBad | Event::Deadline | Event::Closed,
            ) => Some(S::Failed),
            _ => None,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 7] = [
        Event::FrameGood,
        Event::FrameRejects,
        Event::FrameBad,
        Event::Accept,
        Event::Reject,
        Event::Deadline,
        Event::Closed,
    ];
}
