//! The steps of a login as a table (RFC 7143 §6.3): what we said last, and what follows when the target answers. It promises that no
//! answer leads past a step that has to be taken. Texts, and whether a proof is good, are not known here.

use verbena_wire::iscsi::Stage;

#[cfg(test)]
mod tests;

/// What we said last and want an answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Names, and how we can prove who we are.
    Method,
    /// The algorithms of CHAP.
    Algorithms,
    /// The answer to the target's challenge.
    Prove,
    /// That we want to leave the security stage.
    Leave,
    /// The operational keys.
    Operate,
    /// Nothing: the login succeeded.
    Full,
    /// Nothing: it ended otherwise.
    Over,
}

/// What the target did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It wants no proof.
    ChoseNone,
    /// It wants CHAP.
    ChoseChap,
    /// It sent its challenge.
    Challenged,
    /// It said something, and stays in the stage.
    Stayed,
    /// It leaves the stage, as we asked.
    Moved,
}

impl State {
    #[cfg(test)]
    pub(super) const ALL: [State; 7] = [
        State::Method,
        State::Algorithms,
        State::Prove,
        State::Leave,
        State::Operate,
        State::Full,
        State::Over,
    ];

    /// What follows, or nothing if the target may not do this.
    pub(super) const fn next(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Method, Event::ChoseNone) => Some(State::Leave),
            (State::Method, Event::ChoseChap) => Some(State::Algorithms),
            // A target that was offered nothing but None may leave without a word.
            (State::Method, Event::Moved) => Some(State::Operate),
            (State::Algorithms, Event::Challenged) => Some(State::Prove),
            (State::Prove, Event::Stayed) => Some(State::Leave),
            (State::Prove | State::Leave, Event::Moved) => Some(State::Operate),
            (State::Operate, Event::Moved) => Some(State::Full),
            (State::Method | State::Algorithms | State::Leave | State::Operate, Event::Stayed) => {
                Some(self)
            }
            _ => None,
        }
    }

    /// The stage it belongs to.
    pub(super) const fn stage(self) -> Stage {
        match self {
            State::Method | State::Algorithms | State::Prove | State::Leave => Stage::Security,
            State::Operate => Stage::Operational,
            State::Full | State::Over => Stage::FullFeature,
        }
    }

    /// The stage that we ask for with the end of our text. `open` says that the method is not settled by our offer.
    pub(super) const fn asks_for(self, open: bool) -> Option<Stage> {
        match self {
            State::Method if open => None,
            State::Method | State::Prove | State::Leave => Some(Stage::Operational),
            State::Operate => Some(Stage::FullFeature),
            State::Algorithms | State::Full | State::Over => None,
        }
    }
}
