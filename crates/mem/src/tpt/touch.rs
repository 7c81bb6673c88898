//! One-touch entries in the table (M9): touching and removing them.
//! Of all messages that end in an entry exactly one is the first, and every other one gets [`Refusal::Touched`]; the entry is removed
//! when the first has been placed. [`crate::touch`] has the table of decisions.

use std::sync::Arc;

use verbena_sync::atomic::Ordering;
use verbena_wire::Stag;

use super::Tpt;
use crate::check::{self, MemAccess};
use crate::grant::{GrantedRange, Placement};
use crate::refusal::{Misuse, Refusal};
use crate::slot::{Slot, Touch};
use crate::touch::{Action, Arrival, Seq, decide};

/// What is done with a segment.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// It is placed, and the entry stays.
    Place(Placement<'a>),
    /// It is placed; the entry is removed when the [`Spend`] is dropped.
    Spends(Placement<'a>, Spend),
    /// It is placed; the entry is removed when the stream reaches the segment's end, by [`Tpt::expire_reached`] or a [`TouchAhead`].
    Ahead(Placement<'a>),
    /// It is not placed.
    Dropped,
}

/// The first touch of an entry while it is being placed: dropped, it removes the entry. The caller that drops it must not hold a
/// grant on the entry.
///
/// It holds the table, so that the entry is removed also if the connection ends in the middle: a message may have
/// filled a part of it by then.
#[derive(Debug)]
#[must_use = "dropping it removes the entry"]
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

/// The first touch of an entry, by a segment that is placed ahead of a gap of its stream. Dropped, it removes the entry: when the stream
/// reaches the segment, or when the connection ends before that, since a message has filled a part of it. The caller that drops it must
/// not hold a grant on the entry.
#[derive(Debug)]
#[must_use = "dropping it removes the entry"]
pub struct TouchAhead {
    tpt: Arc<Tpt>,
    stag: Stag,
    end: Seq,
}

impl Drop for TouchAhead {
    fn drop(&mut self) {
        self.tpt.expire(self.stag, Touch::Ahead(self.end));
    }
}

impl Tpt {
    /// Checks a segment of a peer's tagged message (M7, M9). The second touch fails with [`Refusal::Touched`].
    ///
    /// A second touch removes the entry at once, unless the first is being placed: then the first is placed in full, and
    /// dropping its [`Spend`] removes the entry.
    pub fn touch<'a>(
        self: &'a Arc<Self>,
        reach: &MemAccess,
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
            Action::Spend => self.next_touch(),
            Action::Remember => Touch::Ahead(end),
            Action::Terminate => return Err(self.touched_twice(place.0, stag, before)),
        };
        match (slot.set_touch(touch), touch) {
            (Ok(()), Touch::Held(_)) => Ok(Verdict::Spends(place, self.new_spend(stag, touch))),
            (Ok(()), Touch::Ahead(_)) => Ok(Verdict::Ahead(place)),
            // Another message ended in it between `slot.touch()` and `slot.set_touch()`.
            (Err(before), _) => Err(self.touched_twice(place.0, stag, before)),
        }
    }

    /// Touches a one-touch entry for a read that is served or an atomic that is executed, which removes it, too.
    pub fn spend(self: &Arc<Self>, reach: &MemAccess) -> Result<Spend, Refusal> {
        let window = self.grant(reach, check::remote)?;
        let (stag, touch) = (reach.stag, self.next_touch());
        match window.grant.slot().set_touch(touch) {
            Ok(()) => Ok(self.new_spend(stag, touch)),
            Err(before) => Err(self.touched_twice(window, stag, before)),
        }
    }

    /// Removes an entry that a segment touched out of order, with its last byte at `end`, if the stream, which expects `next`, has
    /// reached that byte. True if this call removed it. For streams that place segments out of order (M9).
    pub fn expire_reached(&self, stag: Stag, end: Seq, next: Seq) -> bool {
        end.is_before(next) && self.expire(stag, Touch::Ahead(end))
    }

    /// What removes the entry that [`touch`](Tpt::touch) has answered with [`Verdict::Ahead`] for a segment with its last byte at `end`; `None`
    /// if the entry is gone.
    pub fn touched_ahead(self: &Arc<Self>, stag: Stag, end: Seq) -> Option<TouchAhead> {
        (self.touched_at(stag)? == end).then(|| TouchAhead {
            tpt: self.clone(),
            stag,
            end,
        })
    }

    /// The last byte, in its stream, of the message that touched a valid entry out of order (M2).
    pub(crate) fn touched_at(&self, stag: Stag) -> Option<Seq> {
        let grant = self.acquire(stag)?;
        match grant.slot().touch() {
            Some(Touch::Ahead(end)) => Some(end),
            Some(Touch::Held(_)) | None => None,
        }
    }

    /// A touch with a new number. Numbers repeat after 2^32 messages, and none is being placed for that long.
    fn next_touch(&self) -> Touch {
        Touch::Held(self.touches.fetch_add(1, Ordering::Relaxed))
    }

    fn new_spend(self: &Arc<Self>, stag: Stag, touch: Touch) -> Spend {
        Spend {
            tpt: self.clone(),
            stag,
            touch,
        }
    }

    fn touched_twice(
        &self,
        window: GrantedRange<'_>,
        stag: Stag,
        before: Option<Touch>,
    ) -> Refusal {
        // `expire` waits until all grants are dropped, this one included.
        drop(window);
        if let Some(before @ Touch::Ahead(_)) = before {
            self.expire(stag, before);
        }
        Refusal::Touched { stag }
    }

    /// Removes an entry because of this touch; false if it is gone, or another entry is in the slot.
    fn expire(&self, stag: Stag, touch: Touch) -> bool {
        let Some(slot) = self.slot(stag.index()) else {
            return false;
        };
        // A window may have been invalidated and bound again under the same key: it was not touched. This first check avoids
        // that its grants fail while the slot is owned below.
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

    /// Frees the index of a region that a touch removed.
    pub(super) fn free_spent(&self, slot: &Slot, stag: Stag) -> Result<(), Misuse> {
        let misuse = Misuse::Stag(stag);
        let owned = slot.claim().map_err(|_| misuse)?;
        // There is no entry, so that any key that matches and is not the slot's own is that of the removed one.
        let spent = owned.matches_key(stag.key()) && slot.key() != stag.key();
        if spent {
            slot.clear_touch();
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
