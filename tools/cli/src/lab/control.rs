//! Commands to a running lab or switch over its control socket: one request in a packet, one answer. The client side waits for the answer.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{LabError, failed};
use super::plan::check_name;
use super::snapshot::Snapshot;
use super::socket::{self, SOCKET_VARIABLE};

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// The state.
    Show,
    /// The namespaces of a host.
    Enter(String),
    /// To change a link.
    Fault {
        /// Its name.
        link: String,
        /// What changes, in words.
        change: String,
    },
    /// Copies of the frames of a link, as packets on this connection.
    Capture(String),
    /// To end.
    Down,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// To [`Request::Show`]: the descriptor with it is a file with the [`Snapshot`], which may be longer than a packet.
    Shown,
    /// Descriptors come with it, of these kinds.
    Entered(Vec<String>),
    /// Done; the text says what holds now.
    Done(String),
    /// Not done.
    Failed(String),
}

/// A connection to a lab or switch.
#[derive(Debug)]
pub struct Client {
    fd: OwnedFd,
    path: PathBuf,
}

/// The control socket of a lab: by its name, or of the only one that runs.
fn find(name: Option<&str>) -> Result<PathBuf, LabError> {
    if let Some(name) = name {
        check_name("lab", name)?;
        return path_of(name);
    }
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE) {
        return Ok(path.into());
    }
    let running: Vec<PathBuf> = socket::all()?
        .into_iter()
        .filter(|path| socket::dial(path).is_ok())
        .collect();
    match &running[..] {
        [one] => Ok(one.clone()),
        [] => Err(LabError::new(
            "no lab is running: begin with verbena lab up FILE",
        )),
        several => {
            let names = several.iter().filter_map(|path| path.file_stem());
            let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
            Err(LabError(format!(
                "several labs are running, so name one with --lab: {}",
                names.join(", ")
            )))
        }
    }
}

/// The control socket of the lab with this name.
pub fn path_of(name: &str) -> Result<PathBuf, LabError> {
    Ok(socket::folder()?.join(format!("{name}.sock")))
}

impl Client {
    /// To the lab with this name, or to the only one.
    pub fn of_lab(name: Option<&str>) -> Result<Client, LabError> {
        let path = find(name)?;
        Client::at(&path).map_err(|error| match name {
            Some(name) => LabError(format!("lab `{name}` is not running ({error})")),
            None => error,
        })
    }

    /// To the socket at a path.
    pub fn at(path: &Path) -> Result<Client, LabError> {
        let fd = socket::dial(path).map_err(failed(path.display().to_string()))?;
        Ok(Client {
            fd,
            path: path.to_owned(),
        })
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request and waits for its answer, which may be a failure.
    pub fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), LabError> {
        let shown = || self.path.display().to_string();
        socket::send(&self.fd, request, &[]).map_err(failed(shown()))?;
        match socket::receive(&self.fd).map_err(failed(shown()))? {
            Some((Reply::Failed(why), _)) => Err(LabError(why)),
            Some(reply) => Ok(reply),
            None => Err(LabError(format!("{}: it ended without an answer", shown()))),
        }
    }

    /// The state.
    pub fn snapshot(&self) -> Result<Snapshot, LabError> {
        let (reply, fds) = self.ask(&Request::Show)?;
        let (Reply::Shown, Some(fd)) = (&reply, fds.into_iter().next()) else {
            return Err(unexpected(&reply));
        };
        let mut file = File::from(fd);
        file.rewind().map_err(failed("the answer"))?;
        let parsed = serde_json::from_reader(BufReader::new(file));
        parsed.map_err(|error| LabError(format!("the answer: {error}")))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The file of [`Reply::Shown`].
pub(crate) fn file_of(snapshot: &Snapshot) -> Result<OwnedFd, LabError> {
    let what = "cannot write the answer";
    let fd = rustix::fs::memfd_create("lab", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(fd.map_err(failed(what))?);
    serde_json::to_writer(&file, snapshot).map_err(failed(what))?;
    Ok(file.into())
}

pub(crate) fn unexpected(reply: &Reply) -> LabError {
    LabError(format!("an unexpected answer: {reply:?}"))
}
