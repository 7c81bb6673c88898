//! The virtual clock: it advances a little with every scheduling decision, and to the next timer when every thread waits.
//! It never goes back.

use core::time::Duration;

use verbena_stream::Time;

use super::simulated::{block, with};

/// The current time.
pub fn now() -> Time {
    Time::from_nanos(with(|world| world.now()))
}

/// The polling interval of [`wait`].
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Sleeps for this long. No lock may be held.
pub fn sleep(time: Duration) {
    block("sleep", Some(now() + time), |_| false);
}

/// Sleeps until `over` returns true or the deadline has passed. No lock may be held.
pub fn wait(until: Time, mut over: impl FnMut() -> bool) {
    while !over() && now() < until {
        sleep(POLL_INTERVAL);
    }
}
