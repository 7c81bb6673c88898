//! Whether a thread of this process blocks in a system call, from `/proc`.
//! A test that must wake a sleeping thread waits for [`wait_blocked`] first: the kernel reports the system call only while the thread is not
//! running, so a blocked thread has evaluated its last condition.

use std::fs;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use rustix::thread::gettid;

use crate::wait_until;

/// A thread of this process, as the kernel numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tid(i32);

impl Tid {
    /// The calling thread.
    pub fn current() -> Tid {
        Tid(gettid().as_raw_nonzero().get())
    }

    /// The thread's voluntary context switches: each blocking system call causes one.
    fn switches(self) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.0)).ok()?;
        let mut lines = status.lines();
        lines
            .find(|line| line.starts_with("voluntary_ctxt_switches"))
            .map(str::to_owned)
    }

    /// The state letter of the thread.
    fn state(self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", self.0)).ok()?;
        let (_, behind) = stat.rsplit_once(')')?;
        behind.trim_start().chars().next()
    }
}

/// Whether the thread blocks: it sleeps in the kernel, and was not awake between two looks.
pub fn is_blocked(thread: Tid) -> bool {
    let before = thread.switches();
    if thread.state() != Some('S') {
        return false;
    }
    crate::pause();
    thread.state() == Some('S') && before.is_some() && thread.switches() == before
}

/// Waits until the thread blocks. It should have nothing to block in but the call under test.
///
/// # Panics
/// After [`crate::WAIT_LIMIT`], or if the thread has ended.
#[track_caller]
pub fn wait_blocked(thread: Tid) {
    wait_until("the thread blocks", || {
        assert!(thread.state().is_some(), "thread {} has ended", thread.0);
        is_blocked(thread)
    });
}

/// Starts a thread that does `work`, and waits until it blocks there.
///
/// # Panics
/// As [`wait_blocked`].
#[track_caller]
pub fn spawn_blocked<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let (tell, notified) = mpsc::channel();
    let handle = scope.spawn(move || {
        tell.send(Tid::current()).expect("the caller waits for it");
        work()
    });
    wait_blocked(notified.recv().expect("the thread's first action"));
    handle
}
