//! Scheduler state of simulated threads: their numbers, and preemptions that the seed decides on.
//! The state of another thread is unknown, as without `/proc`.

use core::time::Duration;

use super::simulated::with;

/// The scheduler state of a thread at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedState {
    /// Running, or ready to run.
    pub runnable: bool,
    /// Time on a processor since it began.
    pub cpu_time: Duration,
    /// Time ready to run without a processor since it began.
    pub run_delay: Duration,
}

/// The number of this thread; not zero.
pub fn thread_id() -> u32 {
    let own = usize::from(shuttle::thread::current().id());
    u32::try_from(own).map_or(u32::MAX, |own| own + 1)
}

/// Involuntary context switches of this thread: in some runs it has many.
pub fn preemptions() -> Option<u64> {
    Some(with(|world| world.preemptions()))
}

/// Unknown.
pub fn sched_state(_: u32) -> Option<SchedState> {
    None
}
