//! Ends the processes that are in the network namespaces of hosts. Only processes whose namespace is one of those that this process holds
//! open are ended, so that a number of a namespace cannot have been given to another one.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::process::{Pid, Signal, kill_process};

/// How long programs have between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// Limit on the passes: each one ends what the one before has started.
const PASSES: usize = 200;
const INTERVAL: Duration = Duration::from_millis(5);

/// Processes in one of these network namespaces, other than the caller.
fn inside(spaces: &[OwnedFd]) -> Vec<Pid> {
    let names: Vec<String> = spaces
        .iter()
        .filter_map(|space| fstat(space.as_fd()).ok())
        .map(|stat| format!("net:[{}]", stat.st_ino))
        .collect();
    let own = rustix::process::getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let number: i32 = entry.file_name().to_str()?.parse().ok()?;
            let space = entry.path().join("ns/net").read_link().ok()?;
            let is_inside = names.iter().any(|name| space.as_os_str() == name.as_str());
            let pid = Pid::from_raw(number)?;
            (is_inside && pid != own).then_some(pid)
        })
        .collect()
}

/// Ends all processes in these network namespaces; with a grace period if it is orderly.
pub(crate) fn sweep(spaces: &[OwnedFd], orderly: bool) {
    let kill = |signal| {
        let found = inside(spaces);
        for pid in &found {
            // It may have ended by itself.
            let _ = kill_process(*pid, signal);
        }
        found.is_empty()
    };
    if orderly {
        let end = Instant::now() + GRACE;
        kill(Signal::TERM);
        while Instant::now() < end && !inside(spaces).is_empty() {
            std::thread::sleep(INTERVAL);
        }
    }
    for _ in 0..PASSES {
        if kill(Signal::KILL) {
            return;
        }
        std::thread::sleep(INTERVAL);
    }
}
