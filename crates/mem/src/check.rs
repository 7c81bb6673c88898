//! The checks on every access, as one pure function each: local (M6), remote (M7) and iSCSI (M12).
//! The order is type, scope of a window, domain, bounds, right; the first that fails is returned with the numbers that did not match.
//! Validity and tag instance are checked by the table before.

use verbena_wire::Stag;

use crate::access::Access;
use crate::entry::{Entry, Kind, Pd, Policy, Scope};
use crate::refusal::Refusal;

/// An access to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemAccess {
    /// The entry.
    pub stag: Stag,
    /// The first byte, in the entry's addresses.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The domain of the queue pair.
    pub pd: Pd,
    /// The queue pair.
    pub qp: u32,
    /// The right that is needed.
    pub needs: Access,
}

/// M6: a data segment of a local work request. Only regions; windows are for peers.
pub fn local(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    let stag = reach.stag;
    if entry.kind != Kind::Region {
        return Err(Refusal::Kind { stag });
    }
    domain(entry, reach)?;
    bounds(entry, reach)?;
    right(entry, reach)
}

/// M7: a tagged segment, a read request or an atomic of a peer.
pub fn remote(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    let stag = reach.stag;
    match entry.kind {
        Kind::Region if entry.policy == Policy::Verbs => domain(entry, reach)?,
        Kind::Window(scope) => {
            in_scope(scope, reach)?;
            // The scope of a type 2A window is its queue pair alone; all others are also tied to the domain.
            if !matches!(scope, Scope::QueuePair(_)) {
                domain(entry, reach)?;
            }
        }
        Kind::Region | Kind::Iscsi => return Err(Refusal::Kind { stag }),
    }
    bounds(entry, reach)?;
    right(entry, reach)
}

/// M12: an R2T or a Data-In of a target. Offsets in the buffers of a command count from zero, whatever its start address refers to.
pub fn command(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    let (stag, at, len) = (reach.stag, reach.at, reach.len);
    is_command(entry, stag, reach.pd)?;
    let end = at.checked_add(len).ok_or(Refusal::Wrap { at, len })?;
    if end > entry.len {
        return Err(Refusal::Bounds {
            stag,
            at,
            len,
            start: 0,
            entry_len: entry.len,
        });
    }
    right(entry, reach)
}

/// M12: the entry is a command of this domain.
pub fn is_command(entry: &Entry, stag: Stag, pd: Pd) -> Result<(), Refusal> {
    if entry.kind != Kind::Iscsi {
        return Err(Refusal::Kind { stag });
    }
    same_domain(entry, stag, pd)
}

fn in_scope(scope: Scope, reach: &MemAccess) -> Result<(), Refusal> {
    match scope {
        Scope::Domain => Ok(()),
        Scope::QueuePair(qp) | Scope::Both(qp) if qp == reach.qp => Ok(()),
        _ => Err(Refusal::Scope { stag: reach.stag }),
    }
}

fn domain(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    same_domain(entry, reach.stag, reach.pd)
}

fn same_domain(entry: &Entry, stag: Stag, asker: Pd) -> Result<(), Refusal> {
    if entry.pd == asker {
        return Ok(());
    }
    Err(Refusal::Domain {
        stag,
        owner: entry.pd.0,
        requester: asker.0,
    })
}

fn bounds(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    let (at, len) = (reach.at, reach.len);
    let end = at.checked_add(len).ok_or(Refusal::Wrap { at, len })?;
    let start = entry.start.get();
    if at >= start && end - start <= entry.len {
        return Ok(());
    }
    Err(Refusal::Bounds {
        stag: reach.stag,
        at,
        len,
        start,
        entry_len: entry.len,
    })
}

fn right(entry: &Entry, reach: &MemAccess) -> Result<(), Refusal> {
    let has = entry.access.get();
    if has.contains(reach.needs) {
        return Ok(());
    }
    Err(Refusal::Right {
        stag: reach.stag,
        has,
        needs: reach.needs,
    })
}

#[cfg(test)]
mod tests;
