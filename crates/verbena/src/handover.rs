//! A running service hands its connections, memory and listeners to its successor, another process (V1, docs/migration.md).
//! It promises that a connection belongs to one of the two at any moment, whichever of them dies and when, and that a handover
//! which is refused leaves the first one running. It refuses memory that lies in one process alone, and processes that speak
//! another form.
//!
//! The running process opens a [`Hatch`]. The successor comes with [`Inheritance::from`]; what it gets it unpacks, and then it
//! takes all of it with one compare-and-swap on a word that both have mapped. Until that word changes nobody touches the
//! connections: whoever changes it owns them, and the other one lets go.
//!
//! ```text
//!  running process                         successor
//!  Hatch::wait            ◄── hello ──     Inheritance::from
//!  Successor::give         ── hello ──►
//!    connections taken out                     (nobody touches them)
//!                         ── goods, fds ─►   memory(), qp()
//!                                            accept():  word 0 → taken, connections begin
//!    lets go              ◄── taken ──
//!    (no answer: word 0 → kept, connections go on here)
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

/// How long the other process has for its part, if nobody says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a visitor has to say who it is.
const GREETING: Duration = Duration::from_secs(1);

/// What has just been done, for programs that want to tell, or to test what happens if they end right here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The running process: all connections are taken out; their peers wait.
    Departed,
    /// The running process: everything is sent.
    Sent,
    /// The running process: the successor has taken it.
    Given,
    /// The successor: everything has come.
    Received,
    /// The successor: all of it is unpacked, and not its own.
    Unpacked,
    /// The successor: it is its own.
    Claimed,
    /// The successor: all connections flow.
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

/// Why nothing was handed over.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The other process cannot be reached, or stopped in the middle.
    #[error("the other process: {0}")]
    Undelivered(#[from] Undelivered),
    /// The other process is no Verbena, or one of another form.
    #[error("the other process speaks {theirs}, this one {ours}")]
    Form {
        /// What it speaks.
        theirs: String,
        /// What we speak.
        ours: String,
    },
    /// The successor did not want it.
    #[error("the successor did not take it: {0}")]
    Refused(String),
    /// The other process has taken it, or taken it back.
    #[error("the running process has taken everything back")]
    TakenBack,
    /// Nothing of this tag came, or it was unpacked before.
    #[error("no {what} with tag {tag} is left to take")]
    NoSuch {
        /// What was asked for.
        what: &'static str,
        /// By which tag.
        tag: u64,
    },
    /// Something that came was not unpacked, and would be lost.
    #[error("{what} with tag {tag} came and was not taken")]
    Left {
        /// What is left.
        what: &'static str,
        /// Its tag.
        tag: u64,
    },
    /// The other process sent what makes no sense.
    #[error("the other process sent what makes no sense: {0}")]
    Nonsense(&'static str),
    /// The word that decides could not be made.
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

/// Where a running process waits for its successor.
///
/// ```
/// use std::time::Duration;
/// let directory = std::env::temp_dir().join(format!("verbena-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&directory)?;
/// let hatch = verbena::Hatch::open(&directory.join("successor"))?;
/// assert!(hatch.wait(Duration::from_millis(1))?.is_none(), "nobody comes");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Hatch(verbena_engine::sys::Hatch);

impl Hatch {
    /// Opens at this path, for processes of the same user; a path that nobody listens at any more is taken over.
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

    /// Waits so long for a successor; none if nobody came. One that speaks another form is told so and is an error.
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
        // One that says nothing must not use up the patience of who waits behind it.
        courier.set_patience(GREETING, GREETING);
        // Both say it, so that both know.
        courier
            .send(&Hello::OURS.emit(), &[])
            .map_err(HandoverError::from)?;
        let (bytes, _) = courier.receive().map_err(HandoverError::from)?;
        Hello::check(&bytes)?;
        courier.set_patience(PATIENCE, PATIENCE);
        Ok(Some(Successor { courier }))
    }
}
