//! The five-bit code for how long a requester waits when the responder has no receive posted. The
//! codes and durations are those of InfiniBand.

use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// A receiver-not-ready timer code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The largest code.
    pub const MAX_CODE: u8 = 31;
    /// The timer of a queue pair for which none was set: 0.64 ms.
    pub const DEFAULT: Self = Self(12);

    /// The timer with this code; `None` above five bits.
    pub const fn new(code: u8) -> Option<Self> {
        if code > Self::MAX_CODE {
            return None;
        }
        Some(Self(code))
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time it stands for. Code 0 is the longest, not the shortest.
    pub const fn duration(self) -> Duration {
        // In units of 10 µs the codes from 2 on run 2, 3, 4, 6, 8, 12, … : even codes are powers
        // of two, odd codes lie halfway to the next. Code 0 continues where 31 ends.
        let units = match self.0 {
            0 => 1 << 16,
            1 => 1,
            code if code % 2 == 0 => 1 << (code / 2),
            code => 3 << (code / 2 - 1),
        };
        Duration::from_micros(10 * units)
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.duration())
    }
}
