//! Tests of connections: pairs over a faulty link with checkers, and named attacks and corner cases with hand-made segments.

mod attacks;
mod corners;
mod seeds;
mod world;

use core::time::Duration;

use super::*;

/// A millisecond.
const MS: Duration = Duration::from_millis(1);

/// The secrets of a connection whose first byte has the sequence number `initial + 1`.
fn secrets(initial: u32) -> Secrets {
    Secrets {
        initial,
        timestamp_offset: initial ^ 0x5555_5555,
    }
}
