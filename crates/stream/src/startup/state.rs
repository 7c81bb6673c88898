//! The states of a startup, with all transitions in [`State::next`].
//! Every pair of state and event yields a next state, or `None` if the event has no effect.

/// The state of a startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Initiator: the Request is queued, the Reply has not arrived.
    AwaitReply,
    /// Responder: the Request has not arrived.
    AwaitRequest,
    /// Responder: a valid Request waits for the upper layer's decision.
    Deciding,
    /// Agreed; the stream begins.
    Established,
    /// The peer rejected.
    Rejected,
    /// The local upper layer rejected.
    Refused,
    /// The startup failed; close the connection.
    Failed,
}

/// Events of a startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer's frame is valid and its terms are acceptable.
    FrameGood,
    /// The peer's Reply rejects.
    FrameRejects,
    /// The peer's frame is invalid, or its terms are not acceptable.
    FrameBad,
    /// The upper layer accepts.
    Accept,
    /// The upper layer rejects.
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

    /// No event changes a final state.
    pub fn is_final(self) -> bool {
        !matches!(
            self,
            State::AwaitReply | State::AwaitRequest | State::Deciding
        )
    }

    /// The state after `event`; `None` when the event has no effect here.
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
