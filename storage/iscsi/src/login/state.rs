//! The transitions of a login as a table (RFC 7143 §6.3): the state is what was sent last, the event what the target answered. No
//! sequence of events skips a mandatory step. Text and the verification of CHAP are in other files.

use verbena_storage_wire::iscsi::Stage;

#[cfg(test)]
mod tests;

/// What was sent last and awaits an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Names and AuthMethod.
    Method,
    /// CHAP_A.
    Algorithms,
    /// CHAP_N and CHAP_R, the response to the target's challenge.
    Response,
    /// The request to leave the SecurityNegotiation stage.
    Leave,
    /// The operational keys.
    Operational,
    /// Nothing: the login succeeded, the full feature phase begins.
    FullFeature,
    /// Nothing: the login failed or was redirected.
    Finished,
}

/// What the target's response contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// AuthMethod=None.
    ChoseNone,
    /// AuthMethod=CHAP.
    ChoseChap,
    /// CHAP_A, CHAP_I and CHAP_C.
    Challenged,
    /// Anything else, without a stage transition.
    Stayed,
    /// The stage transition that was requested.
    Moved,
}

impl State {
    #[cfg(test)]
    pub(super) const ALL: [State; 7] = [
        State::Method,
        State::Algorithms,
        State::Response,
        State::Leave,
        State::Operational,
        State::FullFeature,
        State::Finished,
    ];

    /// The next state, or `None` if the target may not do this.
    pub(super) const fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Method, Event::ChoseNone) => Some(State::Leave),
            (State::Method, Event::ChoseChap) => Some(State::Algorithms),
            // A target that was offered AuthMethod=None only may leave the stage without answering the key.
            (State::Method, Event::Moved) => Some(State::Operational),
            (State::Algorithms, Event::Challenged) => Some(State::Response),
            (State::Response, Event::Stayed) => Some(State::Leave),
            (State::Response | State::Leave, Event::Moved) => Some(State::Operational),
            (State::Operational, Event::Moved) => Some(State::FullFeature),
            (
                State::Method | State::Algorithms | State::Leave | State::Operational,
                Event::Stayed,
            ) => Some(self),
            _ => None,
        }
    }

    /// The stage that the state belongs to.
    pub(super) const fn stage(self) -> Stage {
        match self {
            State::Method | State::Algorithms | State::Response | State::Leave => Stage::Security,
            State::Operational => Stage::Operational,
            State::FullFeature | State::Finished => Stage::FullFeature,
        }
    }

    /// The next stage that the end of our text requests. `open`: the offer leaves AuthMethod to the target.
    pub(super) const fn requested_stage(self, open: bool) -> Option<Stage> {
        match self {
            State::Method if open => None,
            State::Method | State::Response | State::Leave => Some(Stage::Operational),
            State::Operational => Some(Stage::FullFeature),
            State::Algorithms | State::FullFeature | State::Finished => None,
        }
    }
}
