//! Handover of connections, memory and listeners from a running service to another process, its successor (V1, docs/migration.md).
//! At any time a connection belongs to exactly one of the two processes, whichever of them dies and when. After a failed handover
//! the running process continues with everything. Only memory in shared pages can be handed over, and only between processes with
//! the same version of the format.
//!
//! The running process opens a [`Hatch`]. The successor connects with [`Inheritance::from`], unpacks what it receives, and then
//! takes all of it with one compare-and-swap on a word in memory that both have mapped. Until that word changes neither process
//! touches the connections: the process that changes it owns them, and the other one releases them.
//!
//! ```text
//!  running process                         successor
//!  Hatch::wait            ◄── hello ──     Inheritance::from
//!  Successor::give         ── hello ──►
//!    connections taken out                     (neither side touches them)
//!                         ── goods, fds ─►   memory(), qp()
//!                                            accept():  word 0 → taken, connections begin
//!    releases them        ◄── taken ──
//!    (no answer: word 0 → kept, connections continue here)
//! ```

mod inheritance;
mod successor;
mod word;

pub use inheritance::Inheritance;
pub use successor::{Handover, Kept, Successor};

use core::time::Duration;
use std::path::Path;

use verbena_engine::sys::{Missed, Undelivered};

use crate::error::Error;
use word::Hello;

/// Default time limit for each answer of the other process.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for the first message of a process that connected.
const GREETING: Duration = Duration::from_secs(1);

/// A step that has just been done, for programs that report progress or test what happens if a process ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The running process: all connections are taken out of service; their peers wait.
    Departed,
    /// The running process: everything is sent.
    Sent,
    /// The running process: the successor has taken everything.
    Given,
    /// The successor: everything has been received.
    Received,
    /// The successor: everything is unpacked and not yet owned.
    Unpacked,
    /// The successor: it owns everything.
    Claimed,
    /// The successor: all connections are in service.
    Begun,
}

impl Step {
    /// Every step, in the order in which they happen.
    pub const ALL: [Step; 7] = [
        Step::Departed,
        Step::Sent,
        Step::Received,
        Step::Unpacked,
        Step::Claimed,
        Step::Begun,
        Step::Given,
    ];
}

/// Why a handover failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The other process cannot be reached, or stopped before the end.
    #[error("the other process: {0}")]
    Undelivered(#[from] Undelivered),
    /// The other process is not Verbena, or uses another version of the format.
    #[error("the other process speaks {theirs}, this one {ours}")]
    Form {
        /// The other process's version.
        theirs: String,
        /// This process's version.
        ours: String,
    },
    /// The successor refused.
    #[error("the successor did not take it: {0}")]
    Refused(String),
    /// The running process has taken everything back.
    #[error("the running process has taken everything back")]
    TakenBack,
    /// There is nothing with this tag, or it was unpacked before.
    #[error("no {what} with tag {tag} is left to take")]
    NoSuch {
        /// The kind of object.
        what: &'static str,
        /// Its tag.
        tag: u64,
    },
    /// An object was not unpacked and would be lost.
    #[error("{what} with tag {tag} came and was not taken")]
    Left {
        /// The kind of object.
        what: &'static str,
        /// Its tag.
        tag: u64,
    },
    /// The other process sent something invalid.
    #[error("the other process sent what makes no sense: {0}")]
    Nonsense(&'static str),
    /// The shared word that decides about the ownership could not be created or mapped.
    #[error("the word that says who owns it: {0}")]
    Word(String),
}

impl From<HandoverError> for Error {
    fn from(error: HandoverError) -> Error {
        Error::Handover(Box::new(error))
    }
}

impl From<Missed> for HandoverError {
    fn from(missed: Missed) -> HandoverError {
        HandoverError::Word(missed.to_string())
    }
}

/// A socket at which a running process waits for its successor.
///
/// ```
/// use std::time::Duration;
/// let directory = std::env::temp_dir().join(format!("verbena-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&directory)?;
/// let hatch = verbena::Hatch::open(&directory.join("successor"))?;
/// assert!(hatch.wait(Duration::from_millis(1))?.is_none(), "no successor yet");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Hatch(verbena_engine::sys::Hatch);

impl Hatch {
    /// Opens it at this path, for processes of the same user. A socket left behind by a process that ended is replaced.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("verbena-doc-open-{}", std::process::id()));
    /// let hatch = verbena::Hatch::open(&path)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn open(path: &Path) -> Result<Hatch, Error> {
        let hatch = verbena_engine::sys::Hatch::bind(path).map_err(verbena_engine::Error::from)?;
        Ok(Hatch(hatch))
    }

    /// Waits for a successor until `patience` has passed; returns `None` then. Fails if the successor uses another version of the format.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("verbena-doc-wait-{}", std::process::id()));
    /// # let hatch = verbena::Hatch::open(&path)?;
    /// if let Some(successor) = hatch.wait(std::time::Duration::ZERO)? {
    ///     successor.give(verbena::Handover::default(), |_| ()).map_err(|kept| kept.why)?;
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(&self, patience: Duration) -> Result<Option<Successor>, Error> {
        let come = self.0.accept(patience).map_err(HandoverError::from)?;
        let Some(mut courier) = come else {
            return Ok(None);
        };
        // A process that connects and sends nothing must not delay the next one for long.
        courier.set_patience(GREETING, GREETING);
        // Each side sends its version, so that both can detect a mismatch.
        courier
            .send(&Hello::OURS.emit(), &[])
            .map_err(HandoverError::from)?;
        let (bytes, _) = courier.receive().map_err(HandoverError::from)?;
        Hello::check(&bytes)?;
        courier.set_patience(PATIENCE, PATIENCE);
        Ok(Some(Successor { courier }))
    }
}
