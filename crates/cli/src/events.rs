//! The events of another process, read from its monitor line by line, and the processes that have one.
//! It promises that what it shows was said by the process that was asked for, and that memory stays bounded whatever is said.
//! It refuses to hold that process up: who reads too slowly is told how much is missing.

mod line;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use verbena::monitor::{GREETING, NAME, REFUSED};

pub use line::Line;

/// Where the system lists the names.
const NAMES: &str = "/proc/net/unix";
/// No line is longer.
const LONGEST: u64 = 4096;
/// A process that runs greets sooner.
const PATIENCE: Duration = Duration::from_secs(3);
/// Lines that wait to be shown.
const WAITING: usize = 256;

/// A process that can be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watchable {
    /// Its id.
    pub pid: u32,
    /// Its name, as the system shows it.
    pub program: String,
    /// Numbers of its adapters.
    pub adapters: Vec<u32>,
}

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its id.
        pid: u32,
    },
    /// It has no monitor.
    #[error(
        "process {pid} cannot be watched: it has no adapter with a completion queue, its setting `monitor` is off, \
         or it is in another network namespace"
    )]
    NotWatchable {
        /// Its id.
        pid: u32,
    },
    /// It does not want to be watched by us.
    #[error("process {pid} cannot be watched: {why}")]
    Refused {
        /// Its id.
        pid: u32,
        /// What it says.
        why: String,
    },
    /// It does not answer.
    #[error("process {pid} does not answer; it may be stopped")]
    Silent {
        /// Its id.
        pid: u32,
    },
    /// Somebody else took its name.
    #[error("process {by} has taken the name of process {pid}'s monitor")]
    Impostor {
        /// The process asked for.
        pid: u32,
        /// Who answers.
        by: i32,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The processes that can be watched, by id.
pub fn list() -> Result<Vec<Watchable>, Error> {
    let table = std::fs::read_to_string(NAMES)?;
    let found = names(&table).into_iter().map(|(pid, adapters)| Watchable {
        pid,
        program: program(pid).unwrap_or_else(|| "?".to_owned()),
        adapters,
    });
    Ok(found.collect())
}

/// Its name, if the process is there.
fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Processes and their adapters in the system's list of names; whoever connected appears under the same name, once more.
fn names(table: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut found = BTreeMap::<u32, Vec<u32>>::new();
    for line in table.lines() {
        let name = line.split_whitespace().nth(7);
        let ours = name.and_then(|name| name.strip_prefix('@')?.strip_prefix(NAME));
        let numbers = ours.and_then(|numbers| numbers.split_once('/'));
        if let Some((pid, adapter)) = numbers
            && let (Ok(pid), Ok(adapter)) = (pid.parse(), adapter.parse())
        {
            let adapters = found.entry(pid).or_default();
            if !adapters.contains(&adapter) {
                adapters.push(adapter);
                adapters.sort_unstable();
            }
        }
    }
    found
}

/// Shows every event of a process until it ends or closes its adapters, or until `each` has had enough. `begun` is told
/// when everything from then on will be shown.
pub fn watch(
    pid: u32,
    begun: impl FnOnce(&Watchable),
    mut each: impl FnMut(Line) -> io::Result<()>,
) -> Result<(), Error> {
    let program = program(pid).ok_or(Error::NoProcess { pid })?;
    let table = std::fs::read_to_string(NAMES)?;
    let adapters = names(&table).remove(&pid);
    let adapters = adapters.ok_or(Error::NotWatchable { pid })?;
    let mut readers = Vec::new();
    for &adapter in &adapters {
        readers.push((adapter, visit(pid, adapter)?));
    }
    begun(&Watchable {
        pid,
        program,
        adapters,
    });
    let (tell, told) = sync_channel(WAITING);
    for (adapter, reader) in readers {
        let tell = tell.clone();
        std::thread::spawn(move || read(adapter, reader, &tell));
    }
    drop(tell);
    for line in told {
        each(line)?;
    }
    Ok(())
}

/// Connects to a monitor, and hears its greeting.
fn visit(pid: u32, adapter: u32) -> Result<BufReader<UnixStream>, Error> {
    let name = SocketAddr::from_abstract_name(format!("{NAME}{pid}/{adapter}"))?;
    let stream = match UnixStream::connect_addr(&name) {
        Ok(stream) => stream,
        // It ended a moment ago.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(Error::NotWatchable { pid });
        }
        Err(error) => return Err(error.into()),
    };
    // Any process can take any name that is free.
    let by = socket_peercred(&stream).map_err(io::Error::from)?;
    let by = by.pid.as_raw_nonzero().get();
    if u32::try_from(by) != Ok(pid) {
        return Err(Error::Impostor { pid, by });
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    match reader.by_ref().take(LONGEST).read_line(&mut first) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Error::Silent { pid });
        }
        other => other?,
    };
    let first = first.trim_end();
    if first == GREETING {
        // From now on it speaks when something happens.
        reader.get_ref().set_read_timeout(None)?;
        return Ok(reader);
    }
    let why = first.strip_prefix(REFUSED);
    let why = why.unwrap_or("it speaks another version of Verbena");
    Err(Error::Refused {
        pid,
        why: why.to_owned(),
    })
}

/// The next line, without its end; none when there are no more.
fn next(reader: &mut BufReader<UnixStream>) -> Option<String> {
    let mut line = String::new();
    reader.take(LONGEST).read_line(&mut line).ok()?;
    Some(line.strip_suffix('\n')?.to_owned())
}

fn read(adapter: u32, mut reader: BufReader<UnixStream>, tell: &SyncSender<Line>) {
    while let Some(text) = next(&mut reader) {
        // What has another form was not said by a monitor; there is nothing to show.
        if let Some(line) = Line::parse(adapter, &text)
            && tell.send(line).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
