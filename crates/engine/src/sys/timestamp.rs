//! The time of a completion on both clocks, for queues that record it.
//! Reading needs no system call where the vDSO provides the clocks; the real-time clock may be set back.

use rustix::time::{ClockId, clock_gettime};
use verbena_nic::Timestamp;

use super::clock::now;

/// The current time on both clocks.
pub fn timestamp() -> Timestamp {
    let t = clock_gettime(ClockId::Realtime);
    // Negative before 1970.
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Timestamp {
        monotonic: now().nanos(),
        realtime: seconds.saturating_mul(1_000_000_000).saturating_add(nanos),
    }
}
