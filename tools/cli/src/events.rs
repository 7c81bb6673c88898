//! Events of another process, read from its monitor socket line by line, and the list of processes that have one. The process id of the
//! socket's peer is checked, and memory is bounded. The watched process does not block: a slow reader gets the number of missed events.

mod line;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use verbena::unstable::monitor::{COUNTERS_REQUEST, GREETING, NAME, REFUSED};

pub use line::Line;

/// The list of Unix sockets.
const UNIX_SOCKETS: &str = "/proc/net/unix";
/// Upper limit of a line.
pub(crate) const LONGEST: u64 = 4096;
/// Time limit for the greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// Lines that wait to be shown.
const LINE_QUEUE: usize = 256;

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
    /// There is no such process.
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
    /// It rejected the connection.
    #[error("process {pid} cannot be watched: {why}")]
    Refused {
        /// Its id.
        pid: u32,
        /// Its reason.
        why: String,
    },
    /// It does not answer.
    #[error("process {pid} does not answer; it may be stopped")]
    Silent {
        /// Its id.
        pid: u32,
    },
    /// Another process has bound its name.
    #[error("the monitor socket of process {pid} is bound by process {by}")]
    WrongProcess {
        /// The process asked for.
        pid: u32,
        /// The process that answers.
        by: i32,
    },
    /// It sends a line that is too long, or too many.
    #[error("process {pid} sent more than a description of its adapters")]
    TooMuch {
        /// Its id.
        pid: u32,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The processes that can be watched, by id.
pub fn list() -> Result<Vec<Watchable>, Error> {
    let table = std::fs::read_to_string(UNIX_SOCKETS)?;
    let found = parse_sockets(&table, NAME)
        .into_iter()
        .map(|(pid, adapters)| Watchable {
            pid,
            program: program(pid).unwrap_or_else(|| "?".to_owned()),
            adapters,
        });
    Ok(found.collect())
}

/// The name of a process, if it exists.
pub(crate) fn program(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(printable(
        String::from_utf8_lossy(&name).trim_end_matches('\n'),
    ))
}

/// Text of another process without characters that control a terminal or change the direction of what follows.
pub fn printable(text: &str) -> String {
    let is_safe = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let shown = text.chars().map(|c| if is_safe(c) { c } else { '?' });
    shown.collect()
}

/// Processes and their adapters in the system's list of sockets, where accepted connections appear under the same name.
fn parse_sockets(table: &str, prefix: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut found = BTreeMap::<u32, Vec<u32>>::new();
    for line in table.lines() {
        let name = line.split_whitespace().nth(7);
        let ours = name.and_then(|name| name.strip_prefix('@')?.strip_prefix(prefix));
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

/// Processes and their adapters that have a socket with this prefix.
pub(crate) fn processes_with(prefix: &str) -> Result<BTreeMap<u32, Vec<u32>>, Error> {
    let table = std::fs::read_to_string(UNIX_SOCKETS)?;
    Ok(parse_sockets(&table, prefix))
}

/// The numbers of a process's adapters that have a socket with this prefix.
pub(crate) fn adapters_of(pid: u32, prefix: &str) -> Result<Vec<u32>, Error> {
    let table = std::fs::read_to_string(UNIX_SOCKETS)?;
    let adapters = parse_sockets(&table, prefix).remove(&pid);
    adapters.ok_or(Error::NotWatchable { pid })
}

/// Passes every event of a process to `each` until it ends or closes its adapters, or `each` fails. `begun` is called when all monitors
/// are connected: every later event is shown.
pub fn watch(
    pid: u32,
    begun: impl FnOnce(&Watchable),
    mut each: impl FnMut(Line) -> io::Result<()>,
) -> Result<(), Error> {
    let program = program(pid).ok_or(Error::NoProcess { pid })?;
    let adapters = adapters_of(pid, NAME)?;
    let mut readers = Vec::new();
    for &adapter in &adapters {
        let reader = connect((NAME, GREETING), pid, adapter)?;
        // From now on lines come when there are events.
        reader.get_ref().set_read_timeout(None)?;
        readers.push((adapter, reader));
    }
    begun(&Watchable {
        pid,
        program,
        adapters,
    });
    let (tell, notified) = sync_channel(LINE_QUEUE);
    for (adapter, reader) in readers {
        let tell = tell.clone();
        std::thread::spawn(move || read(adapter, reader, &tell));
    }
    drop(tell);
    for line in notified {
        each(line)?;
    }
    Ok(())
}

/// The interrupt counters of a process: a line per vector that was used, and one in total, for each of its adapters.
pub fn counters(pid: u32) -> Result<Vec<Line>, Error> {
    program(pid).ok_or(Error::NoProcess { pid })?;
    let mut all = Vec::new();
    for adapter in adapters_of(pid, NAME)? {
        let mut reader = connect((NAME, GREETING), pid, adapter)?;
        reader.get_mut().write_all(COUNTERS_REQUEST.as_bytes())?;
        loop {
            let text = next(&mut reader).ok_or(Error::Silent { pid })?;
            // Events may come between.
            let line = Line::parse(adapter, &text);
            let counters = line.and_then(|line| Some((line.counters()?, line)));
            if let Some((last, line)) = counters {
                all.push(line);
                if last {
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// Connects to a socket of an adapter, and reads its greeting. Reads have a timeout.
pub(crate) fn connect(
    (prefix, greeting): (&str, &str),
    pid: u32,
    adapter: u32,
) -> Result<BufReader<UnixStream>, Error> {
    let name = SocketAddr::from_abstract_name(format!("{prefix}{pid}/{adapter}"))?;
    let stream = match UnixStream::connect_addr(&name) {
        Ok(stream) => stream,
        // It ended after the list was read.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(Error::NotWatchable { pid });
        }
        Err(error) => return Err(error.into()),
    };
    // Any process can bind an abstract name that is free.
    let by = socket_peercred(&stream).map_err(io::Error::from)?;
    let by = by.pid.as_raw_nonzero().get();
    if u32::try_from(by) != Ok(pid) {
        return Err(Error::WrongProcess { pid, by });
    }
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    match reader.by_ref().take(LONGEST).read_line(&mut first) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Error::Silent { pid });
        }
        other => other?,
    };
    let first = first.trim_end();
    if first == greeting {
        return Ok(reader);
    }
    let why = first.strip_prefix(REFUSED);
    let why = why.unwrap_or("it uses another version of Verbena's monitor protocol");
    Err(Error::Refused {
        pid,
        why: printable(why),
    })
}

/// The next line, without its newline; `None` at the end.
fn next(reader: &mut BufReader<UnixStream>) -> Option<String> {
    let mut line = String::new();
    reader.take(LONGEST).read_line(&mut line).ok()?;
    Some(line.strip_suffix('\n')?.to_owned())
}

fn read(adapter: u32, mut reader: BufReader<UnixStream>, tell: &SyncSender<Line>) {
    while let Some(text) = next(&mut reader) {
        // A line of another form is not a monitor's, and is skipped.
        if let Some(line) = Line::parse(adapter, &text)
            && tell.send(line).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
