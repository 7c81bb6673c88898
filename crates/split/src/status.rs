//! How a driver stands, told as JSON to whoever connects to its socket: `verbena host status`, `verbena unit status`.
//! It promises sockets that only the same user reaches, and that whoever asks and does not read holds nobody up.
//! It refuses to take orders.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use verbena::runtime;

use crate::service::Counts;

/// A status is no longer.
const LONGEST: u64 = 1 << 20;
/// A driver that runs answers sooner.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long nobody is let in after the system refused one. Drivers look by themselves as often.
const SHUT: Duration = Duration::from_millis(100);
/// Who asks at once; the rest waits for the next round.
const AT_ONCE: usize = 4;

/// What a link's session counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Packets that came.
    pub packets_in: u64,
    /// Packets that were sent.
    pub packets_out: u64,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that were sent.
    pub messages_out: u64,
    /// Of the packets sent, those named in immediate data (P7).
    pub immediates_out: u64,
    /// Of the packets sent, those named in a message.
    pub indications_out: u64,
    /// Acknowledgements of TCP that were not sent, since a later one said the same and more.
    pub outdated: u64,
    /// Elements of the peer that are free.
    pub free: u64,
    /// Lost on the way, as far as known.
    pub lost: u64,
    /// What the peer did against the rules.
    pub violations: u64,
    /// The same by its kind, as far as there was any: see `verbena_push::Kind`.
    pub violations_by_kind: BTreeMap<String, u64>,
}

impl LinkStatus {
    /// Of a link, now.
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
            outdated: link.outdated(),
            free: link.free(),
            lost: counters.lost,
            violations: counters.violations.total(),
            violations_by_kind: kinds.collect(),
        }
    }
}

/// How a host's driver stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its process.
    pub pid: u32,
    /// The interface.
    pub tap: String,
    /// Which of its queues, from 0.
    #[serde(default)]
    pub queue: u8,
    /// Of how many.
    #[serde(default)]
    pub queues: u8,
    /// The unit.
    pub unit: String,
    /// `apart`, `dialling`, `starting`, `up` or `leaving`.
    pub phase: String,
    /// Why there is no connection, if there is none.
    pub why: Option<String>,
    /// A, B or C (P5).
    pub arrangement: String,
    /// The interface's address.
    pub mac: String,
    /// The interface's MTU.
    pub mtu: u32,
    /// The unit's LAN has a link.
    pub link: bool,
    /// What the interface leaves to the unit: names of offloads.
    pub offloads: Vec<String>,
    /// Times that a connection was made and agreed on.
    pub connections: u64,
    /// Frames from the interface.
    pub frames_out: u64,
    /// Frames to the interface.
    pub frames_in: u64,
    /// Frames that were lost here: too long, or refused by the interface.
    pub dropped: u64,
    /// The messages beneath.
    pub messages: LinkStatus,
    /// What the unit counted for us, as it said last.
    pub at_unit: Option<Counts>,
}

/// How a unit's driver stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its process.
    pub pid: u32,
    /// The LAN interface.
    pub lan: String,
    /// Which of its queues, from 0.
    #[serde(default)]
    pub queue: u8,
    /// Of how many.
    #[serde(default)]
    pub queues: u8,
    /// The LAN's MTU.
    pub mtu: u32,
    /// The LAN has a link.
    pub link: bool,
    /// Where hosts connect to.
    pub listens: Vec<String>,
    /// Frames from the LAN.
    pub frames_in: u64,
    /// Frames to the LAN.
    pub frames_out: u64,
    /// Frames to or from the LAN that were lost.
    pub dropped: u64,
    /// Addresses that the switch knows.
    pub addresses: usize,
    /// Requests for channels that were rejected: strangers, hosts too many, channels asked for twice.
    pub rejected: u64,
    /// The hosts.
    pub hosts: Vec<GuestStatus>,
}

/// How one host stands at a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuestStatus {
    /// What it calls itself.
    pub name: String,
    /// Where it is.
    pub from: String,
    /// What it came by: `udp`, `ethernet`, `iwarp`.
    pub carrier: String,
    /// A, B or C (P5).
    pub arrangement: String,
    /// `forming`, `starting`, `up` or `leaving`.
    pub phase: String,
    /// Its address, once it has said so.
    pub mac: Option<String>,
    /// It hears everything.
    pub promiscuous: bool,
    /// Frames.
    pub counts: Counts,
    /// The messages beneath.
    pub messages: LinkStatus,
}

/// Says where it happened.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let what = format!("the driver's status at {}: {error}", path.display());
        io::Error::new(error.kind(), what)
    }
}

/// A driver's socket.
#[derive(Debug)]
pub struct Desk {
    listener: UnixListener,
    path: PathBuf,
    /// Until then nobody is let in: the system had no descriptor for him.
    shut: Cell<Option<Instant>>,
}

impl Desk {
    /// Opens `NAME.sock` in the user's [runtime directory](verbena::runtime), in place of one that nobody answers any more.
    pub fn open(name: &str) -> io::Result<Desk> {
        let directory = runtime::directory().map_err(|error| {
            let what = format!("the driver's status: {error}");
            io::Error::new(error.kind(), what)
        })?;
        Desk::open_in(&directory, name)
    }

    fn open_in(directory: &Path, name: &str) -> io::Result<Desk> {
        let path = directory.join(format!("{name}.sock"));
        if UnixStream::connect(&path).is_ok() {
            let what = format!("a driver is running already: {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let listener = runtime::listen(&path).map_err(at(&path))?;
        let shut = Cell::new(None);
        Ok(Desk {
            listener,
            path,
            shut,
        })
    }

    /// Answers whoever waits.
    pub fn serve(&self, status: impl Fn() -> String) {
        for _ in 0..AT_ONCE {
            let (mut stream, _) = match self.listener.accept() {
                Ok(came) => came,
                Err(error) => {
                    let nobody = error.kind() == io::ErrorKind::WouldBlock;
                    self.shut.set((!nobody).then(|| Instant::now() + SHUT));
                    return;
                }
            };
            // Only its owner and root can open the socket; and if somebody opened it to others, they are told nothing.
            if !is_trusted(&stream) {
                continue;
            }
            // What the socket's buffer does not take is lost, and so is a line cut short: whoever asks sees that.
            if stream.set_nonblocking(true).is_ok() {
                let _ = stream.write_all(status().as_bytes());
            }
        }
    }
}

/// The process at the other end is this user's or root's.
fn is_trusted(stream: &UnixStream) -> bool {
    let user = rustix::process::geteuid().as_raw();
    matches!(runtime::stranger(stream, user), Ok(None))
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Desk {
    /// What to sleep on until somebody asks; nothing for a while after somebody could not be let in, who would be there at once.
    pub fn sleeper(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        let shut = self.shut.get().is_some_and(|until| now < until);
        (!shut).then(|| self.listener.as_fd())
    }
}

/// The names of drivers of a kind (`host`, `unit`) that run, a name per queue: those of a driver in their order. Some may be of
/// drivers that were killed; nobody answers for them.
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
    names.sort_by_cached_key(|name| in_order(name));
    names.dedup();
    Ok(names)
}

/// The interface and the number of the queue, by which queues come in their order.
fn in_order(name: &str) -> (String, u32) {
    let (driver, queue) = name.split_once(':').unwrap_or((name, "0"));
    (driver.to_owned(), queue.parse().unwrap_or(u32::MAX))
}

/// The names of all queues of one driver, the first of which is there in any case.
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

/// Asks a driver how it stands; the answer as it came.
pub fn ask(name: &str) -> io::Result<String> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in runtime::directories() {
        match ask_at(&directory.join(format!("{name}.sock"))) {
            Ok(answer) => return Ok(answer),
            // One that runs and does not answer says more than another that was killed.
            Err(error) if last.kind() == io::ErrorKind::NotFound => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

fn ask_at(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    if !is_trusted(&stream) {
        let what = format!("{} is another user's socket", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    Read::by_ref(&mut stream)
        .take(LONGEST)
        .read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests;
