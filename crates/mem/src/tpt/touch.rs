//! One-touch entries in the table (M9): who touched one, and how it goes.
//! It promises that of all messages which end in an entry exactly one is the first, that every other one is refused, and that
//! the entry is gone when the first has been placed. It refuses to decide; [`crate::touch`] has the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbena_wire::Stag;

use super::Tpt;
use crate::check::{self, Reach};
use crate::grant::{Placement, Window};
use crate::refusal::{Misuse, Refusal};
use crate::slot::{Slot, Touch};
use crate::touch::{Action, Arrival, Seq, decide};

/// What may be done with a segment.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// It is placed, and the entry stays.
    Place(Placement<'a>),
    /// It is placed, and afterwards the entry goes.
    Spends(Placement<'a>, Spend),
    /// It is placed; the entry goes when the stream reaches its end, of which [`Tpt::reached`] is told.
    Ahead(Placement<'a>),
    /// It is not placed.
    Dropped,
}

/// The first touch of an entry, under way: dropped, it takes the entry away. Whoever drops it holds no grant.
///
/// It holds the table, so that a connection which ends in the middle spends the entry all the same: a message may have
/// filled a part of it by then.
#[derive(Debug)]
#[must_use = "dropping it takes the entry away"]
pub struct Spend {
    tpt: Arc<Tpt>,
    stag: Stag,
    touch: Touch,
}

impl Spend {
    /// The entry.
    pub fn stag(&self) -> Stag {
        self.stag
    }
}

impl Drop for Spend {
    fn drop(&mut self) {
        self.tpt.expire(self.stag, self.touch);
    }
}

impl Tpt {
    /// Judges a segment of a peer's tagged message (M7, M9). The second touch is refused: [`Refusal::Touched`].
    ///
    /// A second touch takes the entry away at once, unless the first is being placed at this moment: then the first is
    /// placed in full, and takes the entry with it.
    pub fn touch<'a>(
        self: &'a Arc<Self>,
        reach: &Reach,
        arrival: &Arrival,
    ) -> Result<Verdict<'a>, Refusal> {
        let place = self.place_remote(reach)?;
        let (stag, slot) = (reach.stag, place.0.grant.slot());
        let Arrival {
            last,
            end,
            next,
            window,
        } = *arrival;
        let enabled = place.is_one_touch();
        let before = slot.touch().filter(|_| enabled);
        let touch = match decide(last, enabled, before.is_some(), end, next, window) {
            Action::Place => return Ok(Verdict::Place(place)),
            Action::Drop => return Ok(Verdict::Dropped),
            Action::Spend => self.numbered(),
            Action::Remember => Touch::Ahead(end),
            Action::Terminate => return Err(self.touched_twice(place.0, stag, before)),
        };
        match (slot.mark(touch), touch) {
            (Ok(()), Touch::Held(_)) => Ok(Verdict::Spends(place, self.spending(stag, touch))),
            (Ok(()), Touch::Ahead(_)) => Ok(Verdict::Ahead(place)),
            // Somebody else's message ended in it between our look and our mark.
            (Err(before), _) => Err(self.touched_twice(place.0, stag, before)),
        }
    }

    /// Touches a one-touch entry for a read that is served or an atomic that is done: that spends it, too.
    pub fn spend(self: &Arc<Self>, reach: &Reach) -> Result<Spend, Refusal> {
        let window = self.grant(reach, |e, r| check::remote(e, r, self.policy))?;
        let (stag, touch) = (reach.stag, self.numbered());
        match window.grant.slot().mark(touch) {
            Ok(()) => Ok(self.spending(stag, touch)),
            Err(before) => Err(self.touched_twice(window, stag, before)),
        }
    }

    /// The stream in which a segment came ahead, with its last byte at `end`, expects `next` by now: takes the entry away
    /// if that is beyond it. True if it is gone by this.
    pub fn reached(&self, stag: Stag, end: Seq, next: Seq) -> bool {
        end.is_before(next) && self.expire(stag, Touch::Ahead(end))
    }

    /// The last byte, in its own stream, of the message that touched a valid entry ahead of its turn (M2).
    pub fn touched_at(&self, stag: Stag) -> Option<Seq> {
        let grant = self.acquire(stag)?;
        match grant.slot().touch() {
            Some(Touch::Ahead(end)) => Some(end),
            Some(Touch::Held(_)) | None => None,
        }
    }

    /// A message that is being placed. Numbers come again after 2^32 of them, and none is placed for so long.
    fn numbered(&self) -> Touch {
        Touch::Held(self.touches.fetch_add(1, Ordering::Relaxed))
    }

    fn spending(self: &Arc<Self>, stag: Stag, touch: Touch) -> Spend {
        Spend {
            tpt: self.clone(),
            stag,
            touch,
        }
    }

    fn touched_twice(&self, window: Window<'_>, stag: Stag, before: Option<Touch>) -> Refusal {
        // Whoever takes an entry away waits for all grants, ours among them.
        drop(window);
        if let Some(before @ Touch::Ahead(_)) = before {
            self.expire(stag, before);
        }
        Refusal::Touched { stag }
    }

    /// Takes an entry away because of this touch; false if it is gone already, or another stands there.
    fn expire(&self, stag: Stag, touch: Touch) -> bool {
        let Some(slot) = self.slot(stag.index()) else {
            return false;
        };
        // A window may have been invalidated and bound again under the same key: that one was not touched, and a look
        // before keeps it from being disturbed.
        if slot.touch() != Some(touch) {
            return false;
        }
        let Ok(owned) = slot.revoke(Some(stag.key())) else {
            return false;
        };
        if slot.touch() != Some(touch) {
            owned.restore();
            return false;
        }
        self.unlink(owned.entry());
        owned.release();
        true
    }

    /// Removes what is left of a region that was spent: its index, and the memory it stands for.
    pub(super) fn free_spent(&self, slot: &Slot, stag: Stag) -> Result<(), Misuse> {
        let misuse = Misuse::Stag(stag);
        let owned = slot.claim().map_err(|_| misuse)?;
        // Nothing stands here, so that any other key than its own is the one that was spent.
        let spent = owned.answers_to(stag.key()) && slot.key() != stag.key();
        if spent {
            slot.forget_touch();
        }
        owned.restore();
        if spent && self.indexes.lock().free(stag.index()) {
            Ok(())
        } else {
            Err(misuse)
        }
    }
}

#[cfg(test)]
mod tests;
