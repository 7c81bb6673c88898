//! What `verbena why` reads after a process has ended: its connections and the failures of its queue pairs, as lines of a bounded file.
//! There is one file per process for all of its adapters, made with the first connection. It is removed when the process exits and no queue pair has
//! failed; a process that is killed leaves it with its last connections. A file that cannot be made or written is done without, and a
//! forked child of a process with a file has none.

use core::fmt::Write;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use verbena_sync::locks::Mutex;

use crate::core::Core;
use crate::sys::record_file::{RecordFile, SLOTS, start_time};
use crate::sys::{fork_count, watch_forks};

/// The first slot of connections; the one before is for the process.
const CONNECTIONS: usize = 1;
/// The first slot of failures.
const FAILURES: usize = 32;
/// Connections that are listed at once at most; further ones are not.
pub const MAX_CONNECTIONS: usize = FAILURES - CONNECTIONS;
/// Failures that are kept; a further one replaces the oldest. The last slot is for the exit of the process.
pub const MAX_FAILURES: usize = SLOTS - FAILURES - 1;

static LOG: Mutex<Option<FailureLog>> = Mutex::new(None);
/// The fork count of the process whose log it is. In a forked child the lock may be held by a thread that does not exist there.
static OWNER: AtomicU64 = AtomicU64::new(NO_OWNER);
const NO_OWNER: u64 = u64::MAX;

/// A queue pair of an adapter of this process.
type QpKey = (usize, u32);
/// An adapter that does not exist.
const NO_QP: QpKey = (0, 0);

/// The peer of a queue pair.
#[derive(Debug, Clone, Copy)]
struct Peer {
    qp: QpKey,
    address: SocketAddr,
    /// The connection exists. Its end may be noticed before the failure of the queue pair.
    is_open: bool,
}

struct FailureLog {
    /// `None` if it could not be made.
    file: Option<RecordFile>,
    connections: [Option<Peer>; MAX_CONNECTIONS],
    /// Failures so far.
    failures: usize,
    /// The last ones, each in its slot: queue pairs that still exist are described by them, with the peer that they had.
    lines: Vec<(QpKey, String)>,
}

impl FailureLog {
    fn new() -> FailureLog {
        let log = FailureLog {
            file: RecordFile::create().ok(),
            connections: [None; MAX_CONNECTIONS],
            failures: 0,
            lines: Vec::new(),
        };
        let pid = std::process::id();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let line = format!(
            "process pid={pid} start={} at_ms={} cause={}",
            start_time(pid).unwrap_or(0),
            unix_ms(),
            name.trim_end(),
        );
        log.write(0, &line);
        log
    }

    fn write(&self, slot: usize, line: &str) {
        if let Some(file) = &self.file {
            // A full file system costs a record.
            let _ = file.write(slot, line);
        }
    }

    fn add_connection(&mut self, qp: QpKey, address: SocketAddr, line: &str) {
        let of_it = |peer: &Option<Peer>| peer.is_some_and(|peer| peer.qp == qp);
        let is_free = |peer: &Option<Peer>| peer.is_none_or(|peer| !peer.is_open);
        let mut slots = self.connections.iter();
        let at = slots
            .position(of_it)
            .or_else(|| self.connections.iter().position(is_free));
        if let Some(at) = at {
            self.connections[at] = Some(Peer {
                qp,
                address,
                is_open: true,
            });
            self.write(CONNECTIONS + at, line);
        }
    }

    fn remove_connection(&mut self, qp: QpKey) {
        let mut peers = self.connections.iter_mut().enumerate();
        let found = peers.find_map(|(at, peer)| Some((at, peer.as_mut().filter(|p| p.qp == qp)?)));
        if let Some((at, peer)) = found {
            peer.is_open = false;
            self.write(CONNECTIONS + at, "");
        }
    }

    /// The line with the peer that the queue pair had, if it names none.
    fn with_peer(&self, qp: QpKey, line: String) -> String {
        let peer = self.connections.iter().flatten().find(|peer| peer.qp == qp);
        match peer {
            Some(peer) if !line.contains(" peer=") => {
                line.replacen(" cause=", &format!(" peer={} cause=", peer.address), 1)
            }
            _ => line,
        }
    }

    /// The failure of a queue pair, if it is among the last ones.
    fn line(&self, key: QpKey) -> Option<String> {
        let found = self.lines.iter().find(|(of, _)| *of == key);
        found.map(|(_, line)| line.clone())
    }

    fn add_failure(&mut self, key: QpKey, line: String) {
        let slot = self.failures % MAX_FAILURES;
        let line = self.with_peer(key, line);
        self.write(FAILURES + slot, &line);
        // A new queue pair may have the number of one that was destroyed.
        for (before, _) in &mut self.lines {
            if *before == key {
                *before = NO_QP;
            }
        }
        match self.lines.get_mut(slot) {
            Some(oldest) => *oldest = (key, line),
            None => self.lines.push((key, line)),
        }
        self.failures += 1;
        if let Some(file) = &self.file {
            file.keep();
        }
    }
}

/// Calls `work` on the log of this process, unless `core` is not to be watched.
fn with(core: &Core, work: impl FnOnce(&mut FailureLog, usize)) {
    if cfg!(shuttle) || !core.config.monitor {
        return;
    }
    // Before the lock is taken for the first time.
    let forks = watch_forks();
    let claimed = OWNER.compare_exchange(NO_OWNER, forks, Ordering::AcqRel, Ordering::Acquire);
    if claimed.is_err_and(|owner| owner != forks) {
        return;
    }
    let mut log = LOG.lock();
    let log = log.get_or_insert_with(FailureLog::new);
    work(log, core::ptr::from_ref(core) as usize);
}

/// A queue pair is connected.
pub(crate) fn connected(core: &Core, (qp, qpn): (u32, u32), peer: SocketAddr, wire: &str) {
    with(core, |log, adapter| {
        let mut line = format!("connection number={qp} wc_qpn={qpn} peer={peer} wire={wire}");
        let _ = write!(line, " at_ms={}", unix_ms());
        log.add_connection((adapter, qp), peer, &line);
    });
}

/// It is not any more.
pub(crate) fn disconnected(core: &Core, qp: u32) {
    with(core, |log, adapter| log.remove_connection((adapter, qp)));
}

/// A queue pair has failed.
pub(crate) fn failed(core: &Core, qp: u32, line: String) {
    with(core, |log, adapter| log.add_failure((adapter, qp), line));
}

/// The line of a queue pair that has failed and still exists, as it was then.
pub(crate) fn line_of(core: &Core, qp: u32) -> Option<String> {
    if OWNER.load(Ordering::Acquire) != fork_count() {
        return None;
    }
    let key = (core::ptr::from_ref(core) as usize, qp);
    LOG.lock().as_ref()?.line(key)
}

/// The time of day in milliseconds.
pub(crate) fn unix_ms() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> FailureLog {
        FailureLog {
            file: None,
            connections: [None; MAX_CONNECTIONS],
            failures: 0,
            lines: Vec::new(),
        }
    }

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn oldest_failure_is_replaced() {
        let mut log = log();
        let count = MAX_FAILURES as u32 + 2;
        for qp in 0..count {
            log.add_failure((1, qp), format!("failure number={qp} cause=x"));
        }
        assert_eq!(log.lines.len(), MAX_FAILURES);
        assert_eq!((log.line((1, 0)), log.line((1, 1))), (None, None));
        assert!(log.line((1, 2)).is_some() && log.line((1, count - 1)).is_some());
        assert_eq!(log.line((2, 2)), None, "of another adapter");
    }

    #[test]
    fn second_failure_of_a_number_is_shown() {
        let mut log = log();
        for cause in ["first", "second"] {
            log.add_failure((1, 7), format!("failure number=7 cause={cause}"));
        }
        let line = log.line((1, 7)).unwrap();
        assert!(line.ends_with("cause=second"), "{line}");
    }

    #[test]
    fn failure_names_the_peer_of_an_ended_connection() {
        let mut log = log();
        log.add_connection((1, 7), address(5), "");
        log.remove_connection((1, 7));
        let line = log.with_peer((1, 7), "failure cause=a cause=b".to_owned());
        assert_eq!(line, "failure peer=192.0.2.1:5 cause=a cause=b");
        let told = "failure peer=198.51.100.1:1 cause=a".to_owned();
        assert_eq!(log.with_peer((1, 7), told.clone()), told);
        log.add_connection((1, 7), address(6), "");
        let line = log.with_peer((1, 7), "failure cause=a".to_owned());
        assert_eq!(
            line, "failure peer=192.0.2.1:6 cause=a",
            "the new connection"
        );
    }

    #[test]
    fn connections_beyond_the_limit_are_left_out() {
        let mut log = log();
        let count = MAX_CONNECTIONS as u32 + 1;
        for qp in 0..count {
            log.add_connection((1, qp), address(1), "");
        }
        let has = |log: &FailureLog, qp| log.connections.iter().flatten().any(|p| p.qp == (1, qp));
        assert!(!has(&log, count - 1));
        log.remove_connection((1, 3));
        log.add_connection((1, count), address(2), "");
        assert!(has(&log, count) && !has(&log, 3));
    }
}
