//! The status of a driver, sent as JSON to every connection to its socket: `verbena host status`, `verbena unit status`. Only the same user
//! and root get an answer, and a client that does not read does not block the driver. The socket accepts no commands.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use verbena::unstable::runtime;

use crate::service::Counts;

/// Upper limit of a status in bytes.
const MAX_STATUS: u64 = 1 << 20;
/// How long a client waits for the answer; a running driver answers sooner.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a failed `accept`. Drivers serve the socket at least as often by themselves.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections served per call; the rest waits for the next.
const MAX_ACCEPTS: usize = 4;

/// Counters of a link's session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Packets received.
    pub packets_in: u64,
    /// Packets that were sent.
    pub packets_out: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages that were sent.
    pub messages_out: u64,
    /// Of the packets sent, those indicated by immediate data (P7).
    pub immediates_out: u64,
    /// Of the packets sent, those indicated by a message.
    pub indications_out: u64,
    /// TCP acknowledgements that were not sent because a later one superseded them.
    pub outdated: u64,
    /// Free elements of the peer.
    pub free: u64,
    /// Packets known to be lost in transit.
    pub lost: u64,
    /// Violations of the peer.
    pub violations: u64,
    /// The same by kind, without zeros: see `verbena_push::Kind`.
    pub violations_by_kind: BTreeMap<String, u64>,
}

impl LinkStatus {
    /// The current counters of a link.
    pub(crate) fn of(link: &crate::link::Link) -> LinkStatus {
        let counters = link.counters();
        let kinds = counters.violations.iter();
        let kinds = kinds.map(|(kind, count)| (kind.name().to_owned(), count));
        LinkStatus {
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            messages_in: counters.messages_in,
            messages_out: counters.messages_out,
            immediates_out: counters.immediates_out,
            indications_out: counters.indications_out,
            outdated: link.superseded_acks(),
            free: link.free(),
            lost: counters.lost,
            violations: counters.violations.total(),
            violations_by_kind: kinds.collect(),
        }
    }
}

/// The status of a host's driver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its process id.
    pub pid: u32,
    /// The interface.
    pub tap: String,
    /// The number of the queue, from 0.
    #[serde(default)]
    pub queue: u8,
    /// The number of queues.
    #[serde(default)]
    pub queues: u8,
    /// The unit.
    pub unit: String,
    /// `apart`, `dialling`, `starting`, `up` or `leaving`.
    pub phase: String,
    /// Why the last connection or attempt failed; `None` while connected.
    pub why: Option<String>,
    /// A, B or C (P5).
    pub arrangement: String,
    /// The attributes of its channels (P2), as `acknowledged, connected`.
    #[serde(default)]
    pub channels: String,
    /// The interface's address.
    pub mac: String,
    /// The interface's MTU.
    pub mtu: u32,
    /// The unit's LAN has a link.
    pub link: bool,
    /// The offloads that the interface leaves to the unit, by name.
    pub offloads: Vec<String>,
    /// Connections established since the start.
    pub connections: u64,
    /// Frames from the interface.
    pub frames_out: u64,
    /// Frames to the interface.
    pub frames_in: u64,
    /// Frames dropped here: too long, rejected by the interface, or read while there was no connection.
    pub dropped: u64,
    /// The session's counters.
    pub messages: LinkStatus,
    /// The unit's counters for this host, as last received.
    pub at_unit: Option<Counts>,
}

/// The status of a unit's driver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its process id.
    pub pid: u32,
    /// The LAN interface.
    pub lan: String,
    /// The number of the queue, from 0.
    #[serde(default)]
    pub queue: u8,
    /// The number of queues.
    #[serde(default)]
    pub queues: u8,
    /// The LAN's MTU.
    pub mtu: u32,
    /// The LAN has a link.
    pub link: bool,
    /// The addresses that hosts connect to.
    pub listens: Vec<String>,
    /// Frames from the LAN.
    pub frames_in: u64,
    /// Frames to the LAN.
    pub frames_out: u64,
    /// Frames to or from the LAN that were dropped.
    pub dropped: u64,
    /// Addresses in the switch's table.
    pub addresses: usize,
    /// Requests for channels that were rejected: not from a host, too many hosts, or a channel that is already connected.
    pub rejected: u64,
    /// The hosts.
    pub hosts: Vec<ConnectedHostStatus>,
    /// The disks.
    #[serde(default)]
    pub disks: Vec<DiskStatus>,
}

/// The status of a disk of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Requests executed.
    pub requests: u64,
    /// Of these, those that failed.
    pub failed: u64,
}

/// The status of one host at a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectedHostStatus {
    /// Its name, from its hello.
    pub name: String,
    /// Its address on the carrier.
    pub from: String,
    /// The carrier: `udp`, `ethernet`, `iwarp`.
    pub carrier: String,
    /// A, B or C (P5).
    pub arrangement: String,
    /// The attributes of its channels (P2), as `acknowledged, connected`.
    #[serde(default)]
    pub channels: String,
    /// `forming`, `starting`, `up` or `leaving`.
    pub phase: String,
    /// Its Ethernet address, once set.
    pub mac: Option<String>,
    /// It receives all frames.
    pub promiscuous: bool,
    /// The disk that it has attached instead of the LAN.
    #[serde(default)]
    pub disk: Option<String>,
    /// Counters of frames.
    pub counts: Counts,
    /// The session's counters.
    pub messages: LinkStatus,
}

/// Adds the path to an error.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let what = format!("the driver's status at {}: {error}", path.display());
        io::Error::new(error.kind(), what)
    }
}

/// A driver's status socket.
#[derive(Debug)]
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    /// No `accept` until then: the last one failed, as for lack of descriptors.
    accept_after: Cell<Option<Instant>>,
}

impl StatusSocket {
    /// Opens `NAME.sock` in the user's [runtime directory](verbena::unstable::runtime); a stale one, to which no process listens, is replaced.
    pub fn open(name: &str) -> io::Result<StatusSocket> {
        let directory = runtime::directory().map_err(|error| {
            let what = format!("the driver's status: {error}");
            io::Error::new(error.kind(), what)
        })?;
        StatusSocket::open_in(&directory, name)
    }

    fn open_in(directory: &Path, name: &str) -> io::Result<StatusSocket> {
        let path = directory.join(format!("{name}.sock"));
        // Until the new socket listens: of two drivers that start at once, the second must not find the first one's socket stale.
        let lock = File::open(directory).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| at(&path)(errno.into()))?;
        if is_listening(&path) {
            let what = format!("a driver is running already: {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let listener = runtime::listen(&path).map_err(at(&path))?;
        let shut = Cell::new(None);
        Ok(StatusSocket {
            listener,
            path,
            accept_after: shut,
        })
    }

    /// Answers waiting connections.
    pub fn serve(&self, status: impl Fn() -> String) {
        for _ in 0..MAX_ACCEPTS {
            let (mut stream, _) = match self.listener.accept() {
                Ok(came) => came,
                Err(error) => {
                    let would_block = error.kind() == io::ErrorKind::WouldBlock;
                    self.accept_after
                        .set((!would_block).then(|| Instant::now() + ACCEPT_PAUSE));
                    return;
                }
            };
            // Only the owner and root can open the socket; if its mode was changed, other users still get nothing.
            if !is_trusted(&stream) {
                continue;
            }
            // What does not fit the socket's buffer is lost; the client gets truncated JSON.
            if stream.set_nonblocking(true).is_ok() {
                let _ = stream.write_all(status().as_bytes());
            }
        }
    }
}

/// Whether a process listens at this socket. It does not block: a socket whose backlog is full is one that a process listens at.
fn is_listening(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(fd) = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return false;
    };
    let connected = SocketAddrUnix::new(path).and_then(|to| net::connect(&fd, &to));
    matches!(connected, Ok(()) | Err(Errno::AGAIN))
}

/// Whether the process at the other end is this user's or root's.
fn is_trusted(stream: &UnixStream) -> bool {
    let user = rustix::process::geteuid().as_raw();
    matches!(runtime::other_user(stream, user), Ok(None))
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl StatusSocket {
    /// The descriptor to wait on for connections; `None` for a while after `accept` failed, since it would be readable at once.
    pub fn wait_fd(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        let shut = self.accept_after.get().is_some_and(|until| now < until);
        (!shut).then(|| self.listener.as_fd())
    }
}

/// The names of running drivers of a kind (`host`, `unit`), one per queue, and those of a driver in order. Drivers that were killed may be
/// among them; their sockets refuse connections.
pub fn running(kind: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let prefix = format!("{kind}-");
    for directory in runtime::directories() {
        for entry in std::fs::read_dir(directory)? {
            let file = entry?.file_name();
            let name = file.to_str().and_then(|f| f.strip_suffix(".sock"));
            if let Some(name) = name.filter(|name| name.starts_with(&prefix)) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort_by_cached_key(|name| sort_key(name));
    names.dedup();
    Ok(names)
}

/// The sort key: the interface, and the number of the queue.
fn sort_key(name: &str) -> (String, u32) {
    let (driver, queue) = name.split_once(':').unwrap_or((name, "0"));
    (driver.to_owned(), queue.parse().unwrap_or(u32::MAX))
}

/// The names of all queues of one driver; the first is always included.
pub fn queues(kind: &str, interface: &str) -> io::Result<Vec<String>> {
    let first = format!("{kind}-{interface}");
    let further = format!("{first}:");
    let mut names = vec![first];
    names.extend(
        running(kind)?
            .into_iter()
            .filter(|name| name.starts_with(&further)),
    );
    Ok(names)
}

/// Requests a driver's status; returns the answer as received.
pub fn query(name: &str) -> io::Result<String> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in runtime::directories() {
        match query_path(&directory.join(format!("{name}.sock"))) {
            Ok(answer) => return Ok(answer),
            // The first error of a socket that exists.
            Err(error) if last.kind() == io::ErrorKind::NotFound => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

fn query_path(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    if !is_trusted(&stream) {
        let what = format!("{} is another user's socket", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    stream.set_read_timeout(Some(QUERY_TIMEOUT))?;
    let mut answer = String::new();
    Read::by_ref(&mut stream)
        .take(MAX_STATUS)
        .read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests;
