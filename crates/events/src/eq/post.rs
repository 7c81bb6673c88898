//! Writing events into a queue, and keeping those that find no room until they do (E2).
//! Events keep their order. A thread that unlocks with a backlog checks once more whether the read indicator has moved; whether to
//! signal is decided in `eq/state.rs`.

use super::*;

#[cfg(not(loom))]
type Guard<'a> = verbena_sync::locks::MutexGuard<'a, End>;
#[cfg(loom)]
type Guard<'a> = loom::sync::MutexGuard<'a, End>;

impl EventQueue {
    /// Writes an event, or keeps it in the backlog if there is no room. `signal` is the vector or line for this event.
    pub fn post(&self, eqe: Eqe, signal: Signal, now: Time) -> Result<Outcome, EqError> {
        let mut out = Outcome::default();
        let mut end = self.end.lock();
        let Some(place) = &end.memory else {
            return Err(EqError::Undefined);
        };
        if !eqe.fits(place.memory.form()) {
            return Err(EqError::NumberTooLarge(eqe.number()));
        }
        self.signal.store(signal.pack(), Ordering::Relaxed);
        if end.settings.moderation == Moderation::Adaptive
            && let Some(hold) = end.adaptive.observe(now)
        {
            self.set_hold(hold);
        }
        if !end.backlog.is_empty() {
            self.flush(&mut end, now, &mut out);
        }
        if end.backlog.is_empty() && self.write_entry(&mut end, eqe, now, &mut out) {
            return Ok(out);
        }
        self.add_to_backlog(&mut end, eqe, &mut out)?;
        self.unlock(end, now, &mut out);
        Ok(out)
    }

    /// Writes an entry if there is room.
    fn write_entry(&self, end: &mut End, eqe: Eqe, now: Time, out: &mut Outcome) -> bool {
        let Some(place) = &mut end.memory else {
            return false;
        };
        let word = self.load_word();
        end.seen = word.read;
        if !place.has_room(word) {
            return false;
        }
        let eqe = eqe.with_indicator(word.written);
        // Relaxed: the entry's code releases it.
        self.placed
            .store(word.after_write().written, Ordering::Relaxed);
        place.memory.write(place.slot, eqe);
        place.slot = place.memory.next_slot(place.slot);
        let hold = self.hold();
        let (word, (act, held)) = self.change(|word| {
            let word = word.after_write();
            let held = word.unread() == 0 || hold.holds(word.unread());
            let (state, act) = word.state.next(Input::Post { held });
            let owed = state == State::Armed && word.unread() > 0;
            (Word { state, ..word }, (act, owed))
        });
        self.apply(act, out);
        if held {
            self.wait(now, hold, out);
        }
        if word.written % end.settings.publish_every.max(1) == 0 {
            self.published.store(word.written, Ordering::Release);
        }
        true
    }

    /// Adds an event to the backlog.
    fn add_to_backlog(&self, end: &mut End, eqe: Eqe, out: &mut Outcome) -> Result<(), EqError> {
        let kept = end.backlog.len();
        if kept >= end.settings.backlog {
            // E2: the event would be lost; the queue is undefined from here on. The backlog goes with it: a thread that has advanced the
            // read indicator meanwhile would wait for it to be written.
            self.change(|word| {
                let (state, act) = word.state.next(Input::Loss);
                let backlog = false;
                (
                    Word {
                        state,
                        backlog,
                        ..word
                    },
                    act,
                )
            });
            end.memory = None;
            end.backlog = VecDeque::new();
            return Err(EqError::Lost { kept });
        }
        end.backlog.push_back(eqe);
        let (_, act) = self.change(|word| {
            let (state, act) = word.state.next(Input::Overflow);
            let backlog = true;
            (
                Word {
                    state,
                    backlog,
                    ..word
                },
                act,
            )
        });
        self.apply(act, out);
        out.overflow |= !core::mem::replace(&mut end.overflow_reported, true);
        Ok(())
    }

    /// Writes the backlog, as far as there is room.
    pub(super) fn flush(&self, end: &mut End, now: Time, out: &mut Outcome) {
        while let Some(eqe) = end.backlog.front().copied() {
            if !self.write_entry(end, eqe, now, out) {
                return;
            }
            end.backlog.pop_front();
        }
        end.overflow_reported = false;
        self.change(|word| {
            let backlog = false;
            (Word { backlog, ..word }, ())
        });
    }

    /// Unlocks. With a backlog it checks the word once more afterwards: a driver that advanced meanwhile did not wait for the lock.
    pub(super) fn unlock<'a>(&'a self, mut end: Guard<'a>, now: Time, out: &mut Outcome) {
        while !end.backlog.is_empty() {
            let seen = end.seen;
            drop(end);
            let (word, ()) = self.change(|word| (word, ()));
            if !word.backlog || word.read == seen {
                return;
            }
            match self.end.try_lock() {
                Some(again) => end = again,
                None => return,
            }
            self.flush(&mut end, now, out);
        }
    }
}
