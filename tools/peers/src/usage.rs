//! Resource usage of this process: processor time, resident memory, voluntary context switches, and the descriptor limit. The numbers are
//! the kernel's; a missing one is an error.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads, in seconds.
pub(crate) fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory, in bytes.
pub(crate) fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    Ok(field(&text, "VmRSS:").context("/proc/self/status has no VmRSS")? << 10)
}

/// Voluntary context switches of all threads but the calling one.
pub(crate) fn wakeups() -> Result<u64> {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != own.as_str()) {
            sum += switches(&path)?;
        }
    }
    Ok(sum)
}

fn switches(task: &Path) -> Result<u64> {
    let text = match std::fs::read_to_string(task.join("status")) {
        Ok(text) => text,
        // The thread ended after it was listed: NotFound before its file was opened, ESRCH after.
        Err(error) if ended(&error) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    field(&text, "voluntary_ctxt_switches:")
        .context("/proc has no voluntary_ctxt_switches of a thread")
}

fn ended(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Descriptors for other purposes than connections.
const SPARE: u64 = 200;

/// Raises the descriptor limit for so many connections; an error if that is not possible.
pub(crate) fn allow_connections(count: usize) -> Result<()> {
    let most = raise_descriptors()?;
    if most < count as u64 + SPARE {
        bail!("{count} connections need as many descriptors, and this process may have {most}");
    }
    Ok(())
}

/// Raises the descriptor limit to its maximum, and returns it.
fn raise_descriptors() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_testing::Tid;

    #[test]
    fn field_matches_only_at_line_start() {
        let text = "VmHWM:\t    9 kB\nVmRSS:\t    5508 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t8\n";
        assert_eq!(field(text, "VmRSS:"), Some(5508));
        assert_eq!(field(text, "voluntary_ctxt_switches:"), Some(7));
        assert_eq!(field(text, "VmPeak:"), None);
    }

    #[test]
    fn cpu_and_resident_memory_are_read() {
        let spun: u64 = (0..2_000_000_u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 3));
        assert!(std::hint::black_box(spun) < u64::MAX && cpu() > 0.0);
        assert!(resident().unwrap() > 100 << 10);
    }

    /// The sum alone shows nothing: threads of other tests end, and their switches are no longer counted.
    #[test]
    fn wakeups_of_a_thread_are_counted() {
        std::thread::scope(|scope| {
            let (tell, notified) = std::sync::mpsc::channel::<()>();
            let (answer, answered) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let ids = (Tid::current(), rustix::thread::gettid());
                answer.send(ids).unwrap();
                for () in notified {
                    answer.send(ids).unwrap();
                }
            });
            let (waiter, thread) = answered.recv().unwrap();
            let thread = thread.as_raw_nonzero().to_string();
            let task = Path::new("/proc/self/task").join(thread);
            let before = switches(&task).unwrap();
            for _ in 0..10 {
                verbena_testing::wait_blocked(waiter);
                tell.send(()).unwrap();
                answered.recv().unwrap();
            }
            let after = switches(&task).unwrap();
            assert!(after > before, "{before} before, {after} after");
            assert!(wakeups().unwrap() >= after);
        });
    }

    #[test]
    fn a_thread_that_has_ended_counts_nothing() {
        assert_eq!(switches(Path::new("/proc/self/task/0")).unwrap(), 0);
    }
}
