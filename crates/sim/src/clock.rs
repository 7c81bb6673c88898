//! The world's clock: it moves when the world says so and never by itself.
//! It promises that time does not run backwards.
//! It refuses to know what a second feels like.

use verbena_stream::Time;

/// A clock that is set by its owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    now: Time,
}

impl Clock {
    /// The moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Moves on to `moment`; a moment in the past changes nothing.
    pub fn advance_to(&mut self, moment: Time) {
        self.now = self.now.max(moment);
    }
}
