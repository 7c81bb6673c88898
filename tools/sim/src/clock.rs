//! The virtual clock: it advances only when the simulation sets it.
//! Time does not run backwards.

use verbena_stream::Time;

/// A clock that is set by its owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    now: Time,
}

impl Clock {
    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Advances to `moment`; a time in the past changes nothing.
    pub fn advance_to(&mut self, moment: Time) {
        self.now = self.now.max(moment);
    }
}
