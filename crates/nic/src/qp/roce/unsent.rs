//! Responses to Reads of the peer whose packets have not been sent: they have the bytes from before every later request of the queue pair.
//! What a later request is about to change is copied first, up to `Transfer::snapshot_max` bytes in all responses together. A response that the
//! peer asks for again has what memory holds then, apart from the part that had not been sent.

use verbena_mem::{Gather, Placement};
use verbena_roce::responder::ReadPart;
use verbena_wire::Stag;
use verbena_wire::roce::Psn;

use super::super::QpInit;
use super::super::owed::read_access;
use super::super::snapshot::Snapshot;
use super::wire::RoceWire;

impl RoceWire {
    /// What responses have not sent yet, apart from those without payload.
    fn unsent_reads(&self) -> impl Iterator<Item = ReadPart> + '_ {
        let held = self.held_response.and_then(|response| response.source);
        let all = held.into_iter().chain(self.responder.unsent_reads());
        all.filter(|part| part.memory.len > 0)
    }

    /// A response has payload that is not sent.
    pub(super) fn has_unsent_reads(&self) -> bool {
        self.unsent_reads().next().is_some()
    }

    /// A request is about to change this memory: responses keep a copy. False if there is no room for it.
    pub(super) fn preserve(&mut self, init: &QpInit, target: &Placement<'_>) -> bool {
        self.copy_unsent(init, |_, source, part, snapshot, room| {
            snapshot.copy_overlap(source, part.offset, target, room)
        })
    }

    /// The entry is about to be invalidated by the peer: responses keep a copy of all that they need of it. False if there is no room
    /// for that.
    pub(super) fn preserve_entry(&mut self, init: &QpInit, stag: Stag) -> bool {
        self.copy_unsent(init, |rkey, source, part, snapshot, room| {
            let all = (part.offset, part.memory.len);
            rkey != stag || snapshot.copy(source, part.offset, all, room)
        })
    }

    /// Calls `copy` with every part that is not sent and may still be read, as long as it returns true.
    fn copy_unsent(
        &mut self,
        init: &QpInit,
        copy: impl Fn(Stag, &Gather<'_>, &ReadPart, &mut Snapshot, &mut usize) -> bool,
    ) -> bool {
        if !self.has_unsent_reads() {
            // The usual case.
            return true;
        }
        let mut snapshots = core::mem::take(&mut self.snapshots);
        let mut room = init.transfer.snapshot_max.saturating_sub(snapshots.cost());
        let kept = self.unsent_reads().all(|part| {
            let memory = part.memory;
            let reach = read_access(init, memory.rkey, memory.va.get(), memory.len);
            // A refusal is handled where the response is sent.
            init.tpt.gather_remote(&reach).ok().is_none_or(|source| {
                snapshots.extend(part.read, |snapshot| {
                    copy(memory.rkey, &source, &part, snapshot, &mut room)
                })
            })
        });
        self.snapshots = snapshots;
        kept
    }

    /// This part was sent: its copies are dropped.
    pub(super) fn handle_read_sent(&mut self, sent: &ReadPart) {
        let end = sent.offset.saturating_add(sent.memory.len);
        if self.snapshots.drop_before(sent.read, end) {
            self.drop_snapshots();
        }
    }

    /// Drops the copies that no queued response needs.
    pub(super) fn drop_snapshots(&mut self) {
        if !self.snapshots.is_empty() {
            let mut snapshots = core::mem::take(&mut self.snapshots);
            snapshots.retain(|read| self.is_unsent(read));
            self.snapshots = snapshots;
        }
    }

    fn is_unsent(&self, read: Psn) -> bool {
        self.unsent_reads().any(|part| part.read == read)
    }

    /// Every copy is one for a response that is not sent.
    pub(in super::super) fn invariants(&self) -> bool {
        self.snapshots.reads().all(|read| self.is_unsent(read))
    }
}
