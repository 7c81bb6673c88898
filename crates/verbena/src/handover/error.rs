//! Why a handover failed, and what the program can do instead.
//! The process that had the objects keeps them, unless the other one owns them already.

use verbena_engine::sys::{ClaimError, FdChannelError};
use verbena_wire::Stag;

/// Why a handover failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The other process cannot be reached, or stopped before the end.
    #[error("channel to the other process: {0}")]
    Channel(String),
    /// The other process is not Verbena, or uses another version of the format.
    #[error("the other process uses {theirs}, this one {ours}")]
    VersionMismatch {
        /// The other process's version.
        theirs: String,
        /// This process's version.
        ours: String,
    },
    /// The successor refused.
    #[error("the successor refused: {0}")]
    Refused(String),
    /// The running process has taken everything back.
    #[error("the running process has taken everything back")]
    Withdrawn,
    /// There is nothing with this tag, or it was unpacked before.
    #[error("there is no {what} with tag {tag}, or it was unpacked before")]
    NotFound {
        /// The kind of object.
        what: &'static str,
        /// Its tag.
        tag: u64,
    },
    /// An object was not unpacked and would be lost.
    #[error("{what} with tag {tag} was received and not unpacked")]
    NotUnpacked {
        /// The kind of object.
        what: &'static str,
        /// Its tag.
        tag: u64,
    },
    /// A window is bound to memory that stays.
    #[error(
        "window {window} is bound to memory {region}, which is not handed over: hand it over too, or unbind the window first"
    )]
    WindowMemory {
        /// The window.
        window: Stag,
        /// The memory.
        region: Stag,
    },
    /// A window belongs to a queue pair that stays.
    #[error(
        "window {window} belongs to queue pair {qp}, which is not handed over: hand it over too, or unbind the window first"
    )]
    WindowQp {
        /// The window.
        window: Stag,
        /// The queue pair.
        qp: u32,
    },
    /// An object depends on another one, which must be unpacked before.
    #[error("window with tag {tag} is bound to the {needs} with tag {needed}: unpack that first")]
    UnpackFirst {
        /// The tag of the window.
        tag: u64,
        /// The kind of object that it depends on.
        needs: &'static str,
        /// Its tag.
        needed: u64,
    },
    /// The other process sent something invalid.
    #[error("the other process sent an invalid message: {0}")]
    InvalidMessage(&'static str),
    /// The shared word that decides about the ownership could not be created or mapped.
    #[error("shared ownership word: {0}")]
    SharedWord(String),
}

#[doc(hidden)]
impl From<FdChannelError> for HandoverError {
    fn from(error: FdChannelError) -> HandoverError {
        HandoverError::Channel(error.to_string())
    }
}

#[doc(hidden)]
impl From<ClaimError> for HandoverError {
    fn from(missed: ClaimError) -> HandoverError {
        HandoverError::SharedWord(missed.to_string())
    }
}
