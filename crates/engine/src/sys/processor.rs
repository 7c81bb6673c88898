//! Processors: which ones this program may use, and the affinity and scheduling policy of a thread.
//! Nothing here needs a privilege: a thread only lowers its own share.

use rustix::io::Errno;

use super::{Error, Result};

/// Processors that a `cpu_set_t` can name.
const MAX_PROCESSORS: usize = libc::CPU_SETSIZE as usize;

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
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many processors the machine has, those that this program may not use included.
pub fn online_processors() -> usize {
    // SAFETY: takes a number and touches no memory of the program.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// How many threads of the machine run or wait for a processor, if the system tells.
pub fn runnable_threads() -> Option<usize> {
    runnable_of(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

/// The fourth field of `/proc/loadavg` is `runnable/existing`.
fn runnable_of(loadavg: &str) -> Option<usize> {
    let (runnable, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

/// The affinity mask of this thread.
pub fn processors() -> Result<Vec<u16>> {
    // SAFETY: `cpu_set_t` is an array of bits, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: writes at most `size_of_val(&set)` bytes to `set`, which outlives the call; zero means this thread.
    let refused = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if refused != 0 {
        return Err(Error::last("sched_getaffinity"));
    }
    // SAFETY: `p` is less than `CPU_SETSIZE`, so the bit is inside the set.
    let has = |&p: &usize| unsafe { libc::CPU_ISSET(p, &set) };
    Ok((0..MAX_PROCESSORS).filter(has).map(|p| p as u16).collect())
}

/// The processor that this thread runs on now, if the system reports it.
pub fn processor() -> Option<u16> {
    // SAFETY: takes no argument.
    let here = unsafe { libc::sched_getcpu() };
    u16::try_from(here).ok()
}

/// Restricts this thread to these processors.
pub fn set_affinity(on: &[u16]) -> Result<()> {
    // SAFETY: `cpu_set_t` is an array of bits, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    for &processor in on {
        if usize::from(processor) >= MAX_PROCESSORS {
            return Err(Error::new("sched_setaffinity", Errno::INVAL));
        }
        // SAFETY: `processor` is less than `CPU_SETSIZE` (checked above), so the bit is inside the set.
        unsafe { libc::CPU_SET(processor.into(), &mut set) };
    }
    // SAFETY: reads `size_of_val(&set)` bytes of `set`, which outlives the call; zero means this thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setaffinity")),
    }
}

/// Lowers the scheduling policy of this thread. It cannot be raised again without a privilege.
pub fn set_sched_policy(courtesy: SchedPolicy) -> Result<()> {
    let policy = match courtesy {
        SchedPolicy::Normal => return Ok(()),
        SchedPolicy::Batch => libc::SCHED_BATCH,
        SchedPolicy::Idle => libc::SCHED_IDLE,
    };
    // SAFETY: `sched_param` consists of integers; these policies require priority zero.
    let parameter: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: reads `parameter`, which outlives the call; zero means this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setscheduler")),
    }
}

/// The shortest time slice that a thread can request, in nanoseconds.
const MIN_SLICE_NANOS: u64 = 100_000;

/// `struct sched_attr` of the kernel, which libc does not define.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For ordinary threads: the requested time slice, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Requests a short time slice for this thread: when it wakes, it preempts threads with longer ones sooner. Its share of the processor
/// does not change. Linux before 6.12 ignores it.
pub fn request_short_slice() -> Result<()> {
    let mut attributes = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: writes at most `size` bytes to `attributes`, which has that size and outlives the call; zero means this thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if known != 0 {
        return Err(Error::last("sched_getattr"));
    }
    attributes.size = size;
    attributes.runtime = MIN_SLICE_NANOS;
    // SAFETY: reads `attributes`, whose size is in its first field.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setattr")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_pinned_to_its_processor() {
        let all = processors().unwrap();
        assert!(!all.is_empty());
        let last = *all.last().unwrap();
        let seen = std::thread::spawn(move || {
            set_affinity(&[last]).unwrap();
            assert_eq!(processor(), Some(last));
            processors().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert!(set_affinity(&[u16::MAX]).is_err());
        assert_eq!(processors().unwrap(), all, "the others stay where they are");
    }

    #[test]
    fn runnable_threads_are_read_from_loadavg() {
        assert_eq!(runnable_of("0.52 0.61 0.60 17/812 4711\n"), Some(17));
        assert_eq!(runnable_of("0.52 0.61 0.60\n"), None);
        assert!(runnable_threads().is_some_and(|threads| threads > 0));
        assert!(online_processors() >= parallelism());
    }

    #[test]
    fn short_slice_needs_no_privilege() {
        let policy = std::thread::spawn(|| {
            request_short_slice().unwrap();
            // SAFETY: queries the policy of this thread; takes no pointer.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(policy.join().unwrap(), libc::SCHED_OTHER);
    }

    #[test]
    fn lower_priority_needs_no_privilege() {
        let worker = std::thread::spawn(|| {
            set_sched_policy(SchedPolicy::Normal).unwrap();
            set_sched_policy(SchedPolicy::Batch).unwrap();
            set_sched_policy(SchedPolicy::Idle).unwrap();
            // SAFETY: queries the policy of this thread; takes no pointer.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(worker.join().unwrap(), libc::SCHED_IDLE);
    }
}
