//! When a signal that is owed may wait, and for how long: by count, by time, and by itself (E6).
//! It promises that no signal waits longer than its delay, and that a quiet queue does not wait at all once it adapts.
//! It refuses to know the time; it is told.

use core::time::Duration;

use verbena_stream::Time;

/// Longest delay.
pub const MAX_DELAY: Duration = Duration::from_millis(100);

/// How long a queue may hold a signal back: until `count` entries wait or `delay` is over, whichever is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Entries that end the wait.
    pub count: u32,
    /// Time that ends it.
    pub delay: Duration,
}

impl Hold {
    /// Every signal at once.
    pub const OFF: Hold = Hold {
        count: 1,
        delay: Duration::ZERO,
    };

    /// A hold that makes sense: some delay with some count, or none.
    pub fn new(count: u32, delay: Duration) -> Result<Hold, BadHold> {
        if delay > MAX_DELAY || (delay.is_zero() != (count <= 1)) {
            return Err(BadHold { count, delay });
        }
        Ok(Hold { count, delay })
    }

    /// Whether a signal is held back while so many entries wait.
    pub fn holds(self, unread: u32) -> bool {
        !self.delay.is_zero() && unread < self.count
    }
}

/// A hold that makes no sense.
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

/// How a queue moderates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Moderation {
    /// Not at all.
    #[default]
    Off,
    /// Always so.
    Fixed(Hold),
    /// By the rate of events, see [`Adaptive`].
    Adaptive,
}

impl Moderation {
    /// What holds at first.
    pub fn hold(self) -> Hold {
        match self {
            Moderation::Off | Moderation::Adaptive => Hold::OFF,
            Moderation::Fixed(hold) => hold,
        }
    }
}

/// Events are counted over this long before the rate is judged.
pub const WINDOW: Duration = Duration::from_millis(1);

/// Rate of events per window from which on a level holds, and what it holds.
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

/// Chooses a level by the rate of events: few events are told at once, many together.
///
/// It climbs one level per window at most, so that a burst does not delay what follows it, and falls to the level of the
/// rate at once, so that a stream that ends is soon answered promptly again.
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
    /// One event; the new hold if it changes.
    pub fn observe(&mut self, now: Time) -> Option<Hold> {
        let span = now.since(self.since);
        if span < WINDOW {
            self.events = self.events.saturating_add(1);
            return None;
        }
        // A window that nobody closed in time is a slow one: its events count for all of it.
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

    /// What holds now.
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
    /// Not while there is something to do: it comes back after this long by itself, and arms when it finds nothing.
    WhenIdle(Duration),
}

#[cfg(test)]
mod tests;
