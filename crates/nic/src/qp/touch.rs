//! One-touch memory in a queue pair (M9): which message of the peer touches an entry, and when the entry is invalidated.
//! A Write spends the entry that its last segment is placed in, as do a read that is served and an atomic that is executed; a second
//! message is refused. Which one was first is decided by the table.
//!
//! What arrives in order is here; a segment that touches an entry ahead of a gap is in [`super::ahead`]. The
//! entry is invalidated when the message is delivered, or with the connection: a message that was cut may have filled a part of it.
//! An entry is invalidated only where no grant is held, since invalidating waits for all grants.

use verbena_mem::{Access, Arrival, MemAccess, Placement, Refusal, Spend, Verdict, atomic};
use verbena_stream::Violation;
use verbena_wire::rdmap::{AtomicRequest, Opcode};

use super::QpInit;
use super::memory::{Right, access_violation, mem_access};
use super::wqe::Payload;
use crate::state::QpType;

/// The Write that is being received, as far as one-touch memory is concerned.
#[derive(Debug, Default)]
pub(super) enum Touching {
    /// It does not go there.
    #[default]
    No,
    /// It goes there, and its last segment has not arrived.
    Seen(MemAccess),
    /// Its last segment is being placed.
    Spends(Spend),
}

impl Touching {
    /// One-touch memory is being touched.
    #[inline]
    pub(super) fn is_touching(&self) -> bool {
        !matches!(self, Touching::No)
    }

    /// Grants a run of a Write that goes to one-touch memory; returns the Write's new state, if it changes. `last`: the run is in the
    /// Write's last segment.
    pub(super) fn grant<'a>(
        &self,
        init: &'a QpInit,
        reach: &MemAccess,
        last: bool,
        mut each: impl FnMut(Placement<'a>) -> bool,
    ) -> Result<Option<Touching>, Refusal> {
        if matches!(self, Touching::Spends(s) if s.stag() == reach.stag) {
            // The rest of a segment that arrived in parts: it was checked when it began.
            each(init.tpt.place_remote(reach)?);
            return Ok(None);
        }
        match init.tpt.touch(reach, &Arrival::in_order(last))? {
            Verdict::Place(place) | Verdict::Ahead(place) => {
                each(place);
                Ok(Some(Touching::Seen(*reach)))
            }
            Verdict::Spends(place, spend) => {
                each(place);
                Ok(Some(Touching::Spends(spend)))
            }
            Verdict::Dropped => Err(Refusal::Touched { stag: reach.stag }),
        }
    }

    /// The Write has arrived in full: the entry it ended in is invalidated. Fails if the peer may not touch it.
    pub(super) fn finish(self, init: &QpInit) -> Result<(), Violation> {
        let reach = match self {
            Touching::No | Touching::Spends(_) => return Ok(()),
            Touching::Seen(reach) => reach,
        };
        // Its last segment had no bytes to place, and ends in the entry nevertheless.
        match init.tpt.touch(&reach, &Arrival::in_order(true)) {
            Ok(Verdict::Spends(place, spend)) => {
                drop(place);
                drop(spend);
                Ok(())
            }
            Err(refusal) if init.qp_type != QpType::Uc => {
                Err(access_violation(Opcode::Write, reach.stag, &refusal))
            }
            _ => Ok(()),
        }
    }
}

/// Executes an atomic on a word of one-touch memory: that spends the entry, unless the word is not aligned and nothing is done.
pub(super) fn atomic_one_touch(
    init: &QpInit,
    reach: &MemAccess,
    request: &AtomicRequest,
) -> Result<Option<u64>, Refusal> {
    if !atomic::is_aligned(&init.tpt.place_remote(reach)?) {
        return Ok(None);
    }
    let spend = init.tpt.spend(reach)?;
    let original = atomic::execute(&init.tpt.place_remote(reach)?, request.op)?;
    drop(spend);
    Ok(original)
}

/// A classic read's response is in its sink. Where peers may name windows only it is a tagged message that ends in a window
/// like any other (M7).
pub(super) fn sink_touched(init: &QpInit, payload: &Payload, classic: bool) -> Result<(), Refusal> {
    let (Payload::Gather(sges), Right::Peer) = (payload, Right::of_sink(init, classic)) else {
        return Ok(());
    };
    for sge in sges.iter().filter(|sge| sge.len > 0) {
        let reach = mem_access(init, sge, Access::REMOTE_WRITE);
        if init.tpt.place_remote(&reach)?.is_one_touch() {
            drop(init.tpt.spend(&reach)?);
        }
    }
    Ok(())
}
