//! Processors: which ones this program may use, and how a thread settles on some and gives way to others.
//! It promises that nothing here needs a privilege: a thread can always ask for less.
//! It refuses to know which threads deserve what.

use rustix::io::Errno;

use super::{Error, Result};

/// Processors that a set can name.
const MOST: usize = libc::CPU_SETSIZE as usize;

/// How far a thread gives way to others on its processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Courtesy {
    /// As any thread.
    None,
    /// It gets little while others want to run.
    Some,
    /// It runs when nobody else wants to, and is interrupted as soon as somebody does.
    Full,
}

/// How many threads can run at once, as far as this program is concerned.
pub fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors that this thread may run on.
pub fn processors() -> Result<Vec<u16>> {
    // SAFETY: a set of processors is plain bits, of which none is a valid value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: writes a set of the size it is told, which is ours.
    let refused = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if refused != 0 {
        return Err(Error::last("sched_getaffinity"));
    }
    // SAFETY: looks at a bit inside of the set.
    let has = |&p: &usize| unsafe { libc::CPU_ISSET(p, &set) };
    Ok((0..MOST).filter(has).map(|p| p as u16).collect())
}

/// The processor that this thread runs on at this moment, if the system says.
pub fn processor() -> Option<u16> {
    // SAFETY: asks for a number and takes nothing.
    let here = unsafe { libc::sched_getcpu() };
    u16::try_from(here).ok()
}

/// This thread runs on these processors only.
pub fn settle(on: &[u16]) -> Result<()> {
    // SAFETY: as above.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    for &processor in on {
        if usize::from(processor) >= MOST {
            return Err(Error::new("sched_setaffinity", Errno::INVAL));
        }
        // SAFETY: sets a bit inside of the set.
        unsafe { libc::CPU_SET(processor.into(), &mut set) };
    }
    // SAFETY: reads a set of the size it is told, which is ours.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setaffinity")),
    }
}

/// This thread gives way from now on. It cannot take that back: that would need a privilege.
pub fn give_way(courtesy: Courtesy) -> Result<()> {
    let policy = match courtesy {
        Courtesy::None => return Ok(()),
        Courtesy::Some => libc::SCHED_BATCH,
        Courtesy::Full => libc::SCHED_IDLE,
    };
    // SAFETY: a parameter is plain numbers, of which zero is the only one that these policies take.
    let parameter: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: reads the parameter; zero means this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setscheduler")),
    }
}

/// The shortest time that a thread can ask to run for at once.
const SHORT: u64 = 100_000;

/// Attributes of scheduling as the system knows them; the C library has no name for them.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For ordinary threads: how long it wants to run at once, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// This thread runs shortly and wants to run soon: it is put before threads that compute, when it wakes. What a thread
/// runs in total does not change. Systems that do not know that (Linux before 6.12) do not mind.
pub fn be_prompt() -> Result<()> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: writes at most as many bytes as it is told the struct has; zero means this thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if known != 0 {
        return Err(Error::last("sched_getattr"));
    }
    attributes.size = size;
    attributes.runtime = SHORT;
    // SAFETY: reads the struct.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setattr")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_settles_where_it_is_told() {
        let all = processors().unwrap();
        assert!(!all.is_empty());
        let last = *all.last().unwrap();
        let seen = std::thread::spawn(move || {
            settle(&[last]).unwrap();
            assert_eq!(processor(), Some(last));
            processors().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert!(settle(&[u16::MAX]).is_err());
        assert_eq!(processors().unwrap(), all, "the others stay where they are");
    }

    #[test]
    fn anybody_may_be_prompt() {
        let policy = std::thread::spawn(|| {
            be_prompt().unwrap();
            // SAFETY: asks for the policy of this thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(policy.join().unwrap(), libc::SCHED_OTHER);
    }

    #[test]
    fn anybody_may_give_way() {
        let worker = std::thread::spawn(|| {
            give_way(Courtesy::None).unwrap();
            give_way(Courtesy::Some).unwrap();
            give_way(Courtesy::Full).unwrap();
            // SAFETY: asks for the policy of this thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(worker.join().unwrap(), libc::SCHED_IDLE);
    }
}
