//! Registration by a work request of the send queue (M4), alone or before a Send (M11).
//! Four things are checked when the request is executed: that the queue pair may register, the STag's index, its tag instance, and the
//! room. If it fails, the send queue stops and may be restarted, or the connection ends. The program has prepared the memory before.
//!
//! | after a failure | reactive | anticipatory |
//! | --- | --- | --- |
//! | state | `Sqe` | `Err` (`iwarp`: `Terminate` first) |
//! | requests before it | continue, and complete | flushed, if they have not completed |
//! | itself | [`Status::MwBindErr`] | the same |
//! | requests behind it, posted or still to be | flushed | flushed |
//! | receives | continue | flushed |
//! | the peer's reads, atomics, Writes | are served | are not |
//! | the peer | notices nothing; its Terminate is processed | gets a Terminate |
//! | afterwards | may be moved to `Rts` again | the connection is over |

use serde::{Deserialize, Serialize};

use verbena_mem::{Misuse, Ticket};

use super::QpInit;

/// Whether the requests of a queue pair may register memory, and what happens if one fails (M4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Registration {
    /// They may.
    pub enabled: bool,
    /// What happens if one fails.
    pub on_failure: OnFailure,
}

/// What a failed registration does to its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// The program relies on the table to report that there is no room: its send queue stops, everything else continues, and
    /// it may try again.
    Reactive,
    /// The program keeps count itself, so that a failure is an error: the connection ends.
    #[default]
    Anticipatory,
}

/// Why a registration failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The queue pair was not created for it.
    #[error("registration by work request is not enabled on the queue pair")]
    NotEnabled,
    /// The table rejected it: the STag's index, its tag instance, or the room.
    #[error(transparent)]
    Refused(#[from] Misuse),
}

/// Executes a registration, after all four checks.
pub(super) fn register(init: &QpInit, ticket: Ticket) -> Result<(), RegisterError> {
    if !init.registration.enabled {
        return Err(RegisterError::NotEnabled);
    }
    Ok(init.tpt.execute(ticket, init.pd)?)
}
