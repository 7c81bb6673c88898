//! One-touch memory as a queue pair meets it (M9): which message of the peer's touches an entry, and when the entry goes.
//! It promises that a Write spends the entry its last segment is placed in, that a read which is served and an atomic which is
//! done do so, too, and that whoever comes second is refused. It refuses to decide who was first; the table does.
//!
//! A stream hands its segments over in order, so that the rows of the table that speak of others do not happen here. The
//! entry goes when the message is delivered, or with the connection: a message that was cut may have filled a part of it.
//! An entry is taken away only where no grant is held, since whoever takes it away waits for all grants.

use verbena_mem::{Access, Arrival, Placement, Reach, Refusal, Spend, Verdict, atomic};
use verbena_stream::Stream;
use verbena_wire::rdmap::{AtomicRequest, Opcode};

use super::QpInit;
use super::answer::access;
use super::inner::Inner;
use super::memory::{Right, reach_of};
use super::wqe::Payload;
use crate::event::Outbox;
use crate::state::QpType;

/// What the Write that is being received has to do with one-touch memory.
#[derive(Debug, Default)]
pub(super) enum Touching {
    /// Nothing.
    #[default]
    No,
    /// It goes there, and its last segment has not come.
    Seen(Reach),
    /// Its last segment is being placed.
    Spends(Spend),
}

/// The first touches under way.
#[derive(Debug, Default)]
pub(super) struct Touches {
    pub(super) write: Touching,
    /// Of reads whose responses were given up.
    pub(super) spent: Vec<Spend>,
}

impl Touches {
    /// Nothing touches one-touch memory now.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.write, Touching::No) && self.spent.is_empty()
    }
}

impl Inner {
    /// Grants a run of a Write that goes to one-touch memory; returns what that means for the Write, if anything is new.
    pub(super) fn touch_run<'a>(
        &self,
        init: &'a QpInit,
        reach: &Reach,
        mut each: impl FnMut(Placement<'a>) -> bool,
    ) -> Result<Option<Touching>, Refusal> {
        if matches!(&self.touches.write, Touching::Spends(s) if s.stag() == reach.stag) {
            // The rest of a segment that came in parts: it was judged when it began.
            each(init.tpt.place_remote(reach)?);
            return Ok(None);
        }
        let last = self.stream.as_ref().is_some_and(Stream::in_last_segment);
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

    /// A Write has arrived in full: the entry it ended in goes. False if the stream is over.
    pub(super) fn write_touched(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let reach = match core::mem::take(&mut self.touches.write) {
            Touching::No | Touching::Spends(_) => return true,
            Touching::Seen(reach) => reach,
        };
        // Its last segment had no bytes to place, and ends in the entry all the same.
        let violation = match init.tpt.touch(&reach, &Arrival::in_order(true)) {
            Ok(Verdict::Spends(place, spend)) => {
                drop(place);
                drop(spend);
                return true;
            }
            Err(refusal) if init.qp_type != QpType::Uc => {
                access(Opcode::Write, reach.stag, &refusal)
            }
            _ => return true,
        };
        if let Some(stream) = &mut self.stream {
            stream.fail(violation);
        }
        self.violated(init, &violation, out);
        false
    }

    /// Whatever was cut short has spent its entry, too.
    pub(super) fn leave_touched(&mut self) {
        if self.touches.is_idle() {
            return;
        }
        if self.gone || self.state.flushes() {
            self.touches.write = Touching::No;
        }
        self.touches.spent.clear();
    }
}

/// Does an atomic on a word of one-touch memory: that spends the entry, unless the word is not aligned and nothing is done.
pub(super) fn atomic_once(
    init: &QpInit,
    reach: &Reach,
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

/// A classic read's answer is in its sink. Where peers may name windows only it is a tagged message that ends in a window
/// like any other (M7).
pub(super) fn sink_touched(init: &QpInit, payload: &Payload, classic: bool) -> Result<(), Refusal> {
    let (Payload::Gather(sges), Right::Peer) = (payload, Right::of_sink(init, classic)) else {
        return Ok(());
    };
    for sge in sges.iter().filter(|sge| sge.len > 0) {
        let reach = reach_of(init, sge, Access::REMOTE_WRITE);
        if init.tpt.place_remote(&reach)?.is_one_touch() {
            drop(init.tpt.spend(&reach)?);
        }
    }
    Ok(())
}
