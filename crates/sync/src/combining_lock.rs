//! A combining lock: a thread that cannot get it leaves its work to the holder instead of waiting.
//! What a thread left for the connection before it called [`run_or_delegate`](CombiningLock::run_or_delegate) is processed under the lock after that call, by
//! that thread or by the holder. What is to be done is passed in by each caller as a closure.
//!
//! One atomic byte beside the lock has two bits. `COMBINING`: the holder checks for calls of `run_or_delegate` before it unlocks. `DELEGATED`:
//! there was such a call. The holder clears `COMBINING` only by a compare-and-exchange that finds `DELEGATED` unset, so a thread that
//! set `DELEGATED` and saw `COMBINING` may leave; a thread that did not see it waits for the lock and does the work itself. A holder
//! in [`read`](CombiningLock::read) never sets `COMBINING`, so `run_or_delegate` waits for it, which is short. (If `read` did the work of others, it
//! would need an outbox for their events, and a query has none.) Modelled with loom in `combining_lock/tests.rs`.

use crate::primitives::{AtomicU8, Mutex, Ordering};

/// `run_or_delegate` was called, and no holder has begun the work for it.
const DELEGATED: u8 = 1;
/// The holder of the lock does the work of `run_or_delegate` calls before it unlocks.
const COMBINING: u8 = 2;

/// A value behind a combining lock.
#[derive(Debug)]
pub struct CombiningLock<T> {
    word: AtomicU8,
    value: Mutex<T>,
}

impl<T> CombiningLock<T> {
    /// Unlocked.
    pub fn new(value: T) -> CombiningLock<T> {
        CombiningLock {
            word: AtomicU8::new(0),
            value: Mutex::new(value),
        }
    }

    /// Does `work` under the lock, waiting for it; then `again`, still under the lock, for as long as `run_or_delegate` was called meanwhile.
    pub fn lock_and_run<R>(
        &self,
        work: impl FnOnce(&mut T) -> R,
        mut again: impl FnMut(&mut T),
    ) -> R {
        let mut value = self.value.lock();
        let slot = CombinerGuard::begin(&self.word);
        let result = work(&mut value);
        slot.finish(|| again(&mut value));
        result
    }

    /// Requests that `again` be done under the lock. If no holder has set `COMBINING`, this caller does it, and repeats it as above;
    /// otherwise the holder calls its own `again`. Returns whether this caller did it.
    ///
    /// It blocks only for a holder in [`read`](CombiningLock::read), or for one between locking and setting `COMBINING` or between clearing it
    /// and unlocking. Work under [`lock_and_run`](CombiningLock::lock_and_run) may ring the same lock; a closure of `read` may not.
    pub fn run_or_delegate(&self, mut again: impl FnMut(&mut T)) -> bool {
        let mut value = match self.value.try_lock() {
            Some(value) => value,
            None => {
                // Release: the holder that does the work sees what we left. Read-modify-writes of other ringers continue the release sequence.
                if self.word.fetch_or(DELEGATED, Ordering::Release) & COMBINING != 0 {
                    return false;
                }
                self.value.lock()
            }
        };
        let slot = CombinerGuard::begin(&self.word);
        again(&mut value);
        slot.finish(|| again(&mut value));
        true
    }

    /// Reads the value under the lock, without doing work for `run_or_delegate` calls.
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.value.lock())
    }
}

/// `COMBINING` is set, by the holder of the lock.
struct CombinerGuard<'a> {
    word: &'a AtomicU8,
}

impl<'a> CombinerGuard<'a> {
    fn begin(word: &'a AtomicU8) -> CombinerGuard<'a> {
        // An earlier `DELEGATED` stays set: its thread waits for the lock, and finds the work done if we do it.
        // Relaxed: the lock orders holders among themselves, and `finish` acquires what ringers left.
        word.fetch_or(COMBINING, Ordering::Relaxed);
        CombinerGuard { word }
    }

    /// Calls `again` until `DELEGATED` is unset, and clears `COMBINING`.
    fn finish(self, mut again: impl FnMut()) {
        let silent = || {
            let swap =
                self.word
                    .compare_exchange(COMBINING, 0, Ordering::Relaxed, Ordering::Relaxed);
            swap.is_ok()
        };
        while !silent() {
            // Cleared before the work: a later `run_or_delegate` is noticed in the next iteration. A swap rather than a store, and acquiring: it
            // reads the last `DELEGATED`, synchronizes with all before it, and sees what their threads left.
            self.word.swap(COMBINING, Ordering::Acquire);
            again();
        }
        core::mem::forget(self);
    }
}

impl Drop for CombinerGuard<'_> {
    /// Only when the work panicked: later ringers must not rely on this holder. `DELEGATED` stays set for the next holder.
    fn drop(&mut self) {
        self.word.fetch_and(!COMBINING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
