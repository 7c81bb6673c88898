//! The clock of the adapter: CLOCK_MONOTONIC in nanoseconds.
//! It never goes back, and reading it needs no system call where the vDSO provides it.

use core::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use verbena_stream::Time;

/// The current time.
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Monotonic);
    // Neither is negative on this clock, and 64 bits of nanoseconds last 584 years.
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The polling interval of [`wait`].
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Sleeps for this long. No lock may be held.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Sleeps until `over` returns true or the deadline has passed. No lock may be held.
pub fn wait(until: Time, mut over: impl FnMut() -> bool) {
    while !over() && now() < until {
        sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_monotonic() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
        assert!(last > Time::ZERO);
    }
}
