//! Processors of the simulated system: two, on which every thread may run.
//! Affinity and policy are accepted and have no effect.

use super::Result;

/// How far a thread yields to others on its processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedPolicy {
    /// An ordinary thread.
    Normal,
    /// SCHED_BATCH: it is disfavoured while others are runnable.
    Batch,
    /// SCHED_IDLE: it runs when no other thread is runnable, and is preempted as soon as one is.
    Idle,
}

/// How many threads of this program can run at once.
pub fn parallelism() -> usize {
    2
}

/// How many processors the machine has.
pub fn online_processors() -> usize {
    2
}

/// How many threads run or wait for a processor: not simulated.
pub fn runnable_threads() -> Option<usize> {
    None
}

/// The affinity mask of this thread.
pub fn processors() -> Result<Vec<u16>> {
    Ok(vec![0, 1])
}

/// The processor that this thread runs on now.
pub fn processor() -> Option<u16> {
    Some(0)
}

/// Restricts this thread to these processors.
pub fn set_affinity(_: &[u16]) -> Result<()> {
    Ok(())
}

/// Lowers the scheduling policy of this thread.
pub fn set_sched_policy(_: SchedPolicy) -> Result<()> {
    Ok(())
}

/// Requests a short time slice for this thread.
pub fn request_short_slice() -> Result<()> {
    Ok(())
}
