//! Entries of iSCSI commands (M12): the buffers of one command, named by its initiator task tag.
//! A lookup checks validity and tag instance, type, domain, bounds and right, and returns the work request whose data segments are
//! the buffers. An entry has no translation: the data segments are checked like any local access when bytes are copied.

use verbena_wire::{Stag, To};

use super::Tpt;
use super::pending::empty_att;
use crate::access::Access;
use crate::check::{self, MemAccess};
use crate::entry::{Entry, Kind, Pd};
use crate::refusal::{Misuse, Refusal};

/// RFC 7143 §11.2.1.8: the reserved tag, which no task has.
const RESERVED: u32 = u32::MAX;

/// An iSCSI command to register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// The work request that has its data segments.
    pub wqe: u64,
    /// Total length of the data segments.
    pub len: u32,
    /// The domain of its queue pair.
    pub pd: Pd,
    /// What the target may do: remote read for a command that writes, remote write for one that reads.
    pub access: Access,
}

impl Tpt {
    /// Registers a command; its STag is its initiator task tag.
    pub fn register_command(&self, command: Command) -> Result<Stag, Misuse> {
        let stag = self.install_command(command)?;
        if stag.get() != RESERVED {
            return Ok(stag);
        }
        // The entry is registered once more, under the next instance or another index.
        self.deregister(stag)?;
        self.install_command(command)
    }

    fn install_command(&self, command: Command) -> Result<Stag, Misuse> {
        self.install(Entry {
            kind: Kind::Iscsi,
            // M12: the start address refers to the work request; peers count from zero.
            start: To::new(command.wqe),
            len: command.len.into(),
            pd: command.pd,
            policy: self.policy,
            access: command.access.into(),
            one_touch: false,
            invalidatable: false,
            att: empty_att(),
            att_offset: 0,
            parent: None,
        })
    }

    /// M12: an R2T or a Data-In names `reach.len` bytes at offset `reach.at` of a command. Returns the command's work request after
    /// six of the seven checks; the seventh, the direction of the command, is made by the caller with the work request.
    pub fn check_command(&self, reach: &MemAccess) -> Result<u64, Refusal> {
        self.command(reach.stag, |entry| check::command(entry, reach))
    }

    /// M12: a response names a command. Returns its work request if the tag is valid and names a command of this domain.
    pub fn find_command(&self, stag: Stag, pd: Pd) -> Result<u64, Refusal> {
        self.command(stag, |entry| check::is_command(entry, stag, pd))
    }

    fn command(
        &self,
        stag: Stag,
        check: impl FnOnce(&Entry) -> Result<(), Refusal>,
    ) -> Result<u64, Refusal> {
        let invalid = Refusal::Stag { stag };
        let grant = self.acquire(stag).ok_or(invalid)?;
        let judge = |entry: &Entry| check(entry).map(|()| entry.start.get());
        grant.entry(judge).unwrap_or(Err(invalid))
    }
}

#[cfg(test)]
mod tests;
