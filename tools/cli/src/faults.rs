//! Faults of running programs: shown, set and removed over a local socket of each of their adapters.
//! The process id of the socket's peer is checked, and what it sends is bounded and stripped of control characters.

use std::io::{Read, Write};
use std::net::Shutdown;

use verbena::faults::Script;
use verbena::unstable::monitor::faults::{CLEAR, GREETING, NAME, SET, SHOW, WRONG};

use crate::events::{Error as MonitorError, adapters_of, connect, program};
use crate::objects::Object;

/// Bytes that are read from one adapter at most.
const MAX_TEXT: u64 = 1 << 20;

/// Why faults cannot be shown or set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process cannot be reached.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The adapter refused the request.
    #[error("process {pid}: {why}")]
    Refused {
        /// The process.
        pid: u32,
        /// Its reason.
        why: String,
    },
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Monitor(error.into())
    }
}

/// What is asked of a process.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Show the faults.
    Show,
    /// Remove them.
    Clear,
    /// Replace them by these.
    Set(&'a Script),
}

/// The faults of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The adapter's number in the process.
    pub adapter: u32,
    /// The seed.
    pub seed: u64,
    /// The rules as text, what each has counted, and how often it has fired.
    pub rules: Vec<(String, u64, u64)>,
}

/// Asks all adapters of a process; what each has after that.
pub fn ask(pid: u32, request: Request<'_>) -> Result<Vec<Faults>, Error> {
    program(pid).ok_or(MonitorError::NoProcess { pid })?;
    let text = match request {
        Request::Show => SHOW.to_owned(),
        Request::Clear => CLEAR.to_owned(),
        Request::Set(script) => format!("{SET}{script}"),
    };
    let adapters = adapters_of(pid, NAME)?;
    adapters
        .into_iter()
        .map(|adapter| ask_adapter(pid, adapter, &text))
        .collect()
}

fn ask_adapter(pid: u32, adapter: u32, request: &str) -> Result<Faults, Error> {
    let mut reader = connect((NAME, GREETING), pid, adapter)?;
    reader.get_mut().write_all(request.as_bytes())?;
    reader.get_mut().shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    reader.take(MAX_TEXT).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    if let Some(why) = answer.strip_prefix(WRONG) {
        let why = why.chars().filter(|c| !c.is_control()).collect();
        return Err(Error::Refused { pid, why });
    }
    let mut lines = answer.lines();
    let first = lines.next().and_then(|line| line.strip_prefix("seed="));
    let seed = first.and_then(|seed| seed.parse().ok());
    let seed = seed.ok_or(MonitorError::Silent { pid })?;
    let rule = |line| {
        let object = Object::parse(adapter, line)?;
        let text = object.get("cause")?.to_owned();
        Some((text, object.number("seen")?, object.number("fired")?))
    };
    let rules = lines.filter_map(rule).collect();
    Ok(Faults {
        adapter,
        seed,
        rules,
    })
}
