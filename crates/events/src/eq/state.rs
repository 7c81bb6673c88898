//! The states of an event queue and what each input does in each of them: one table (E2).
//! Every pair of state and input has an entry, and the state changes nowhere else. Entries and indicators are not known here; inputs
//! carry what the caller has counted.

/// State of an event queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It has no memory yet, was destroyed, or lost an event: nothing is written.
    Undefined,
    /// Events are written without a signal.
    Unarmed,
    /// Events are written, and the next one causes a signal.
    Armed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 3] = [State::Undefined, State::Unarmed, State::Armed];
}

/// Input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// The driver gives it memory.
    Initialise,
    /// An event is written.
    Post {
        /// Moderation holds the signal back, or the driver has read it already.
        held: bool,
    },
    /// An event for which there is no room, but which can be kept.
    Overflow,
    /// An event for which there is no room, neither in the queue nor in the backlog.
    Loss,
    /// The driver arms it.
    Arm {
        /// Unread entries wait, and moderation does not hold the signal back.
        ready: bool,
    },
    /// The driver unarms it.
    Unarm,
    /// The delay of moderation is over.
    Due {
        /// Unread entries wait.
        unread: bool,
    },
    /// Other memory, larger or smaller.
    Switch,
    /// The driver takes its memory away.
    Destroy,
}

impl Input {
    /// All of them.
    pub const ALL: [Input; 12] = [
        Input::Initialise,
        Input::Post { held: false },
        Input::Post { held: true },
        Input::Overflow,
        Input::Loss,
        Input::Arm { ready: false },
        Input::Arm { ready: true },
        Input::Unarm,
        Input::Due { unread: false },
        Input::Due { unread: true },
        Input::Switch,
        Input::Destroy,
    ];
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// Nothing but the new state.
    Nothing,
    /// The vector is signalled, in the same step.
    Signal,
    /// The call fails.
    Refuse,
    /// The adapter shuts down.
    Shutdown,
}

impl State {
    /// The transition table (E2).
    pub const fn next(self, input: Input) -> (State, Act) {
        use State::{Armed, Unarmed, Undefined};
        match (self, input) {
            (Undefined, Input::Initialise) => (Unarmed, Act::Nothing),
            (Undefined, Input::Post { .. } | Input::Overflow | Input::Loss) => {
                (Undefined, Act::Shutdown)
            }
            (Undefined, Input::Due { .. }) => (Undefined, Act::Nothing),
            (Undefined, _) => (Undefined, Act::Refuse),

            (Unarmed | Armed, Input::Initialise) => (self, Act::Refuse),
            (Unarmed | Armed, Input::Destroy) => (Undefined, Act::Nothing),
            // Catastrophic: an event is lost, so the queue is not reliable any more.
            (Unarmed | Armed, Input::Loss) => (Undefined, Act::Shutdown),
            (Unarmed | Armed, Input::Switch) => (self, Act::Nothing),
            (Unarmed | Armed, Input::Unarm) => (Unarmed, Act::Nothing),

            (Unarmed, Input::Post { .. } | Input::Overflow | Input::Due { .. }) => {
                (Unarmed, Act::Nothing)
            }
            // Arming with unread entries signals and unarms in one step.
            (Unarmed | Armed, Input::Arm { ready: true }) => (Unarmed, Act::Signal),
            (Unarmed | Armed, Input::Arm { ready: false }) => (Armed, Act::Nothing),

            (Armed, Input::Post { held: true } | Input::Due { unread: false }) => {
                (Armed, Act::Nothing)
            }
            // A full queue is not moderated.
            (
                Armed,
                Input::Post { held: false } | Input::Overflow | Input::Due { unread: true },
            ) => (Unarmed, Act::Signal),
        }
    }
}

#[cfg(test)]
mod tests;
