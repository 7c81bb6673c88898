//! A combining lock: a thread that cannot get it leaves its work to the holder instead of waiting.
//! What a thread left for the connection before it called [`ring`](Desk::ring) is processed under the lock after that call, by
//! that thread or by the holder. What is to be done is passed in by each caller as a closure.
//!
//! One atomic byte beside the lock has two bits. `ATTENDED`: the holder checks for calls of `ring` before it unlocks. `RUNG`:
//! there was such a call. The holder clears `ATTENDED` only by a compare-and-exchange that finds `RUNG` unset, so a thread that
//! set `RUNG` and saw `ATTENDED` may leave; a thread that did not see it waits for the lock and does the work itself. A holder
//! in [`look`](Desk::look) never sets `ATTENDED`, so `ring` waits for it, which is short. (If `look` did the work of others, it
//! would need an outbox for their events, and a query has none.) Modelled with loom in `desk/tests.rs`.

use crate::sync::{AtomicU8, Mutex, Ordering};

/// `ring` was called, and no holder has begun the work for it.
const RUNG: u8 = 1;
/// The holder of the lock does the work of `ring` calls before it unlocks.
const ATTENDED: u8 = 2;

/// A value behind a combining lock.
#[derive(Debug)]
pub struct Desk<T> {
    word: AtomicU8,
    value: Mutex<T>,
}

impl<T> Desk<T> {
    /// Unlocked.
    pub fn new(value: T) -> Desk<T> {
        Desk {
            word: AtomicU8::new(0),
            value: Mutex::new(value),
        }
    }

    /// Does `work` under the lock, waiting for it; then `again`, still under the lock, for as long as `ring` was called meanwhile.
    pub fn serve<R>(&self, work: impl FnOnce(&mut T) -> R, mut again: impl FnMut(&mut T)) -> R {
        let mut value = self.value.lock();
        let seat = Seat::take(&self.word);
        let result = work(&mut value);
        seat.leave(|| again(&mut value));
        result
    }

    /// Requests that `again` be done under the lock. If no holder has set `ATTENDED`, this caller does it, and repeats it as above;
    /// otherwise the holder calls its own `again`. Returns whether this caller did it.
    ///
    /// It blocks only for a holder in [`look`](Desk::look), or for one between locking and setting `ATTENDED` or between clearing it
    /// and unlocking. Work under [`serve`](Desk::serve) may ring the same lock; a closure of `look` may not.
    pub fn ring(&self, mut again: impl FnMut(&mut T)) -> bool {
        let mut value = match self.value.try_lock() {
            Some(value) => value,
            None => {
                // Release: the holder that does the work sees what we left. Read-modify-writes of other ringers continue the release sequence.
                if self.word.fetch_or(RUNG, Ordering::Release) & ATTENDED != 0 {
                    return false;
                }
                self.value.lock()
            }
        };
        let seat = Seat::take(&self.word);
        again(&mut value);
        seat.leave(|| again(&mut value));
        true
    }

    /// Reads the value under the lock, without doing work for `ring` calls.
    pub fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.value.lock())
    }
}

/// `ATTENDED` is set, by the holder of the lock.
struct Seat<'a> {
    word: &'a AtomicU8,
}

impl<'a> Seat<'a> {
    fn take(word: &'a AtomicU8) -> Seat<'a> {
        // An earlier `RUNG` stays set: its thread waits for the lock, and finds the work done if we do it.
        // Relaxed: the lock orders holders among themselves, and `leave` acquires what ringers left.
        word.fetch_or(ATTENDED, Ordering::Relaxed);
        Seat { word }
    }

    /// Calls `again` until `RUNG` is unset, and clears `ATTENDED`.
    fn leave(self, mut again: impl FnMut()) {
        let silent = || {
            let swap =
                self.word
                    .compare_exchange(ATTENDED, 0, Ordering::Relaxed, Ordering::Relaxed);
            swap.is_ok()
        };
        while !silent() {
            // Cleared before the work: a later `ring` is noticed in the next iteration. A swap rather than a store, and acquiring: it
            // reads the last `RUNG`, synchronizes with all before it, and sees what their threads left.
            self.word.swap(ATTENDED, Ordering::Acquire);
            again();
        }
        core::mem::forget(self);
    }
}

impl Drop for Seat<'_> {
    /// Only when the work panicked: later ringers must not rely on this holder. `RUNG` stays set for the next holder.
    fn drop(&mut self) {
        self.word.fetch_and(!ATTENDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
