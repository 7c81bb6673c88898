//! How long a signal may be held back: by count, by time, or adaptively (E6).
//! No signal is held longer than its delay. The time is passed in.

use core::time::Duration;

use verbena_stream::Time;

/// Longest delay.
pub const MAX_DELAY: Duration = Duration::from_millis(100);

/// How long a queue may hold a signal back: until `count` entries are unread or `delay` has passed, whichever is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Unread entries that end the hold.
    pub count: u32,
    /// Time that ends the hold.
    pub delay: Duration,
}

impl Hold {
    /// Signals are not held back.
    pub const OFF: Hold = Hold {
        count: 1,
        delay: Duration::ZERO,
    };

    /// A valid hold: a delay together with a count of two or more, or neither.
    pub fn new(count: u32, delay: Duration) -> Result<Hold, BadHold> {
        if delay > MAX_DELAY || (delay.is_zero() != (count <= 1)) {
            return Err(BadHold { count, delay });
        }
        Ok(Hold { count, delay })
    }

    /// Whether a signal is held back while so many entries are unread.
    pub fn holds(self, unread: u32) -> bool {
        !self.delay.is_zero() && unread < self.count
    }
}

/// An invalid hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "signals can wait up to {MAX_DELAY:?} for two or more entries, or not at all; not {delay:?} for {count}"
)]
pub struct BadHold {
    /// The count asked for.
    pub count: u32,
    /// The delay asked for.
    pub delay: Duration,
}

/// How a queue moderates its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Moderation {
    /// Not at all.
    #[default]
    Off,
    /// By this hold.
    Fixed(Hold),
    /// By the rate of events, see [`Adaptive`].
    Adaptive,
}

impl Moderation {
    /// The hold to begin with.
    pub fn hold(self) -> Hold {
        match self {
            Moderation::Off | Moderation::Adaptive => Hold::OFF,
            Moderation::Fixed(hold) => hold,
        }
    }
}

/// Events are counted for this long before the rate is computed.
pub const WINDOW: Duration = Duration::from_millis(1);

/// Levels: the lowest rate, in events per window, and the hold from that rate on.
pub const LEVELS: [(u32, Hold); 4] = [
    (0, Hold::OFF),
    (
        20,
        Hold {
            count: 4,
            delay: Duration::from_micros(20),
        },
    ),
    (
        100,
        Hold {
            count: 16,
            delay: Duration::from_micros(50),
        },
    ),
    (
        500,
        Hold {
            count: 64,
            delay: Duration::from_micros(100),
        },
    ),
];

/// Chooses a level by the rate of events: few events are signalled at once, many are coalesced.
///
/// It rises by at most one level per window, so that a burst does not delay what follows it, and falls to the level of the
/// rate at once, so that latency is low again soon after a stream of events ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    since: Time,
    events: u32,
    level: usize,
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive {
            since: Time::ZERO,
            events: 0,
            level: 0,
        }
    }
}

impl Adaptive {
    /// Counts one event; returns the new hold if it changes.
    pub fn observe(&mut self, now: Time) -> Option<Hold> {
        let span = now.since(self.since);
        if span < WINDOW {
            self.events = self.events.saturating_add(1);
            return None;
        }
        // If no event came for several windows, the count is averaged over all of them.
        let windows = (span.as_nanos() / WINDOW.as_nanos()).max(1);
        let rate = u128::from(self.events) / windows;
        let fits = |level: &usize| u128::from(LEVELS[*level].0) <= rate;
        let wanted = (0..LEVELS.len()).rev().find(fits).unwrap_or(0);
        (self.since, self.events) = (now, 1);
        let level = wanted.min(self.level + 1);
        let changed = level != self.level;
        self.level = level;
        changed.then_some(LEVELS[level].1)
    }

    /// The current hold.
    pub fn hold(&self) -> Hold {
        LEVELS[self.level].1
    }
}

/// When the driver arms a queue again after it has served it (E6, the driver's part).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Arming {
    /// At the end of each service, in the write that acknowledges.
    #[default]
    Now,
    /// Not while there are events: the driver polls again after this long, and arms when it finds none.
    WhenIdle(Duration),
}

#[cfg(test)]
mod tests;
