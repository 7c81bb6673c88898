//! Scheduler state of a thread of this process, from `/proc`: whether it is runnable, and how long it ran and waited for a processor.
//! Reading it does not disturb the thread; without `/proc` there is no answer.

use core::time::Duration;
use std::cell::Cell;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;

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

/// The kernel's id of this thread.
pub fn thread_id() -> u32 {
    thread_local! {
        /// Cached; 0 before the first call.
        static ID: Cell<u32> = const { Cell::new(0) };
    }
    ID.try_with(|id| {
        if id.get() == 0 {
            let own = rustix::thread::gettid().as_raw_nonzero();
            id.set(own.get().cast_unsigned());
        }
        id.get()
    })
    // Thread-local storage is gone while a thread ends.
    .unwrap_or(0)
}

/// Involuntary context switches of this thread, if the system reports them.
pub fn preemptions() -> Option<u64> {
    // SAFETY: `rusage` consists of integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: writes one `rusage` to `usage`, which outlives the call.
    let refused = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (refused == 0)
        .then(|| u64::try_from(usage.ru_nivcsw).ok())
        .flatten()
}

/// The state of the thread with this id, if it exists and `/proc` is readable.
pub fn sched_state(thread: u32) -> Option<SchedState> {
    let mut room = [0; 512];
    // "12 (its name, which may contain any character) R 1 …"
    let stat = proc_line(thread, "stat", &mut room)?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let runnable = stat.get(after + 2)? == &b'R';
    // "nanoseconds on a processor, nanoseconds waiting, …"
    let times = proc_line(thread, "schedstat", &mut room)?;
    let mut times = times.split(|byte| *byte == b' ');
    let mut next = || {
        let nanos = core::str::from_utf8(times.next()?).ok()?.parse().ok()?;
        Some(Duration::from_nanos(nanos))
    };
    Some(SchedState {
        runnable,
        cpu_time: next()?,
        run_delay: next()?,
    })
}

fn proc_line<'a>(thread: u32, file: &str, room: &'a mut [u8]) -> Option<&'a [u8]> {
    let path = format!("/proc/self/task/{thread}/{file}");
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = read(&fd, &mut *room).ok()?;
    room.get(..len)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn current_thread_is_runnable() {
        let seen = sched_state(thread_id()).unwrap();
        assert!(seen.runnable);
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {}
        let later = sched_state(thread_id()).unwrap();
        assert!(later.cpu_time > seen.cpu_time);
        assert!(later.run_delay >= seen.run_delay);
    }

    #[test]
    fn blocked_thread_is_not_runnable() {
        let ((say_id, hear_id), (say_end, hear_end)) = (channel(), channel::<()>());
        // A name that looks like the end of the name field.
        let name = std::thread::Builder::new().name("a) R (b".into());
        let thread = name.spawn(move || {
            say_id.send(thread_id()).unwrap();
            let _ = hear_end.recv();
        });
        let id = hear_id.recv().unwrap();
        while sched_state(id).unwrap().runnable {
            std::thread::yield_now();
        }
        let seen = sched_state(id).unwrap();
        (0..1000).for_each(|_| std::thread::yield_now());
        assert_eq!(sched_state(id).unwrap(), seen);
        drop(say_end);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn unknown_thread_has_no_state() {
        assert_eq!(sched_state(0), None);
    }
}
