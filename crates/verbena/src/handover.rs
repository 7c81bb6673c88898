//! Handover of connections, memory and listeners from a running service to another process, its successor (V1, docs/migration.md).
//! At any time a connection belongs to exactly one of the two processes, whichever of them dies and when. After a failed handover
//! the running process continues with everything. Only memory in shared pages can be handed over, and only between processes with
//! the same version of the format.
//!
//! The running process opens a [`HandoverListener`]. The successor connects with [`IncomingHandover::connect`], unpacks what it receives, and then
//! takes all of it with one compare-and-swap on a word in memory that both have mapped. Until that word changes neither process
//! touches the connections: the process that changes it owns them, and the other one releases them.
//!
//! ```text
//!  running process                         successor
//!  HandoverListener::accept ◄── hello ──   IncomingHandover::connect
//!  HandoverSender::send    ── hello ──►
//!    connections taken out                     (neither side touches them)
//!                         ── state, fds ─►   memory(), qp()
//!                                            accept():  word 0 → taken, connections begin
//!    releases them        ◄── taken ──
//!    (no answer: word 0 → kept, connections continue here)
//! ```

pub(crate) mod error;
mod incoming;
mod message;
mod sender;

pub use error::HandoverError;
pub use incoming::IncomingHandover;
pub use sender::{FailedHandover, Handover, HandoverSender};

use core::time::Duration;
use std::path::Path;

use crate::error::Error;
use message::Hello;

/// Default time limit for each answer of the other process.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the first message of a process that connected.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// A step that has just been done, for programs that report progress or test what happens if a process ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverStep {
    /// The running process: all connections are taken out of service; their peers wait.
    Exported,
    /// The running process: everything is sent.
    Sent,
    /// The running process: the successor has taken everything.
    Completed,
    /// The successor: everything has been received.
    Received,
    /// The successor: everything is unpacked and not yet owned.
    Unpacked,
    /// The successor: it owns everything.
    Claimed,
    /// The successor: all connections are in service.
    Started,
}

impl HandoverStep {
    /// Every step, in the order in which they happen.
    pub const ALL: [HandoverStep; 7] = [
        HandoverStep::Exported,
        HandoverStep::Sent,
        HandoverStep::Received,
        HandoverStep::Unpacked,
        HandoverStep::Claimed,
        HandoverStep::Started,
        HandoverStep::Completed,
    ];
}

/// A socket at which a running process waits for its successor.
///
/// ```
/// use std::time::Duration;
/// let directory = std::env::temp_dir().join(format!("verbena-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&directory)?;
/// let listener = verbena::handover::HandoverListener::bind(&directory.join("successor"))?;
/// assert!(listener.accept(Duration::from_millis(1))?.is_none(), "no successor yet");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HandoverListener(verbena_engine::sys::HandoverListener);

impl HandoverListener {
    /// Opens it at this path, for processes of the same user. A socket left behind by a process that ended is replaced.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("verbena-doc-open-{}", std::process::id()));
    /// let listener = verbena::handover::HandoverListener::bind(&path)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind(path: &Path) -> Result<HandoverListener, Error> {
        let handover_listener = verbena_engine::sys::HandoverListener::bind(path)
            .map_err(verbena_engine::Error::from)?;
        Ok(HandoverListener(handover_listener))
    }

    /// Waits for a successor until `patience` has passed; returns `None` then. Fails if the successor uses another version of the format.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("verbena-doc-wait-{}", std::process::id()));
    /// # let listener = verbena::handover::HandoverListener::bind(&path)?;
    /// if let Some(successor) = listener.accept(std::time::Duration::ZERO)? {
    ///     successor.send(verbena::handover::Handover::default(), |_| ()).map_err(|kept| kept.source)?;
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(&self, patience: Duration) -> Result<Option<HandoverSender>, Error> {
        let come = self.0.accept(patience).map_err(HandoverError::from)?;
        let Some(mut fd_channel) = come else {
            return Ok(None);
        };
        // A process that connects and sends nothing must not delay the next one for long.
        fd_channel.set_timeouts(HELLO_TIMEOUT, HELLO_TIMEOUT);
        // Each side sends its version, so that both can detect a mismatch.
        fd_channel
            .send(&Hello::LOCAL.emit(), &[])
            .map_err(HandoverError::from)?;
        let (bytes, _) = fd_channel.receive().map_err(HandoverError::from)?;
        Hello::check(&bytes)?;
        fd_channel.set_timeouts(TIMEOUT, TIMEOUT);
        Ok(Some(HandoverSender {
            channel: fd_channel,
        }))
    }
}
