//! A point in time, in nanoseconds since the epoch of the caller's clock.
//! The state machines here read no clock: every call that needs the time takes it as an argument. Additions saturate.

use core::fmt;
use core::ops::Add;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since the clock's epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The clock's epoch.
    pub const ZERO: Time = Time(0);

    /// Later than any time that is reached.
    pub const MAX: Time = Time(u64::MAX);

    /// `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if it is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates: a deadline 584 years ahead never passes.
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(saturating_nanos(span)))
    }
}

/// The span in nanoseconds; `u64::MAX` if it is longer than 584 years.
pub fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}ms", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_spans_saturate() {
        assert_eq!(saturating_nanos(Duration::from_micros(3)), 3000);
        assert_eq!(saturating_nanos(Duration::MAX), u64::MAX);
        assert_eq!(Time::from_nanos(1) + Duration::MAX, Time::MAX);
    }
}
