//! How tests wait: for a condition, a readable descriptor, or a thread that blocks in the kernel; and tests in processes of their own.
//! Every wait ends as soon as its event has happened, and panics with the event's name after [`WAIT_LIMIT`]; no test passes or fails by
//! the time that a wait takes. Tests have no other sleeps (`cargo xtask tidy`, rule `waits`).

#![forbid(unsafe_code)]

mod process;
mod thread;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub use process::is_own_process;
pub use thread::{Tid, is_blocked, spawn_blocked, wait_blocked};

/// After this time a wait fails. Far longer than any of the events takes on a loaded machine.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// How often a condition is evaluated.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until `holds` returns true. The event is named by `what`, as in "the peer sees the end".
///
/// # Panics
/// After [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until `get` returns a value, and returns it.
///
/// # Panics
/// After [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WAIT_LIMIT;
    loop {
        if let Some(value) = get() {
            return value;
        }
        assert!(Instant::now() < end, "did not happen: {what}");
        pause();
    }
}

/// Calls `step` until `stop` returns true, for threads that play a peer: a step that found nothing to do returns false, and the next one
/// follows after a pause.
pub fn serve_until(mut stop: impl FnMut() -> bool, mut step: impl FnMut() -> bool) {
    while !stop() {
        if !step() {
            pause();
        }
    }
}

fn pause() {
    // real time: the interval between two evaluations of a condition that nothing announces.
    std::thread::sleep(POLL_INTERVAL);
}

/// Waits until the process has ended; false if it still runs after `limit`. A child still has to be waited for.
///
/// # Panics
/// If there is no such process, or poll(2) fails.
pub fn process_ends(id: u32, limit: Duration) -> bool {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    let process = pidfd_open(id.expect("a process"), PidfdFlags::empty());
    readable_within(process.expect("it runs, or was not waited for"), limit)
}

/// Waits until a read from `fd` would not block: bytes, a connection, or the end of the stream.
///
/// # Panics
/// After [`WAIT_LIMIT`], or if poll(2) fails.
#[track_caller]
pub fn wait_readable(what: &str, fd: impl AsFd) {
    assert!(readable_within(fd, WAIT_LIMIT), "did not happen: {what}");
}

/// Whether a read from `fd` would not block, now or within `limit`.
///
/// # Panics
/// If poll(2) fails.
pub fn readable_within(fd: impl AsFd, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a limit of seconds");
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&left)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
