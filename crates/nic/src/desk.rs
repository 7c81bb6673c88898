//! The lock that a connection sits behind, with a bell for those who need not wait for it.
//! It promises that whatever was left for the connection before somebody rang is seen to under the lock after that, by the one who rang or by whoever holds it.
//! It refuses to know what there is to do: each caller brings it along.
//!
//! One word beside the lock has two bits. `ATTENDED` says that the holder will answer the bell before it goes, `RUNG` that
//! somebody rang. A holder can drop `ATTENDED` only in one exchange that finds `RUNG` unset, so a ringer who saw it set
//! is heard; one who did not see it waits for the lock, and serves itself. That is what makes looking harmless: a looker
//! never attends, and a ringer waits for it, for the moment that a look takes. (The other ways are worse: a looker that
//! served would need somewhere to put the events of it, and a query has no outbox.) Modelled with loom in `desk/tests.rs`.

use crate::sync::{AtomicU8, Mutex, Ordering};

/// Somebody rang, and nobody has begun to see to it.
const RUNG: u8 = 1;
/// The holder of the lock answers the bell before it goes.
const ATTENDED: u8 = 2;

/// A value behind a lock with a bell.
#[derive(Debug)]
pub struct Desk<T> {
    word: AtomicU8,
    value: Mutex<T>,
}

impl<T> Desk<T> {
    /// Nobody is at it.
    pub fn new(value: T) -> Desk<T> {
        Desk {
            word: AtomicU8::new(0),
            value: Mutex::new(value),
        }
    }

    /// Does `work` under the lock, waiting for it; then `again`, still under the lock, for as long as somebody rang.
    pub fn serve<R>(&self, work: impl FnOnce(&mut T) -> R, mut again: impl FnMut(&mut T)) -> R {
        let mut value = self.value.lock();
        let seat = Seat::take(&self.word);
        let result = work(&mut value);
        seat.leave(|| again(&mut value));
        result
    }

    /// Rings. If nobody attends the desk this caller does `again` under the lock, and repeats it as above; otherwise
    /// whoever attends does its own. Returns whether this caller did it.
    ///
    /// It waits only for a look, or for one who has just come and not sat down or got up and not gone. Whoever attends
    /// may ring the same desk; whoever looks may not.
    pub fn ring(&self, mut again: impl FnMut(&mut T)) -> bool {
        let mut value = match self.value.try_lock() {
            Some(value) => value,
            None => {
                // Release: what we left is there for whoever answers. Other ringers' exchanges do not end that.
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

    /// Looks at the value without seeing to anything.
    pub fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.value.lock())
    }
}

/// Attending the desk, by the holder of the lock.
struct Seat<'a> {
    word: &'a AtomicU8,
}

impl<'a> Seat<'a> {
    fn take(word: &'a AtomicU8) -> Seat<'a> {
        // A bell that rang before stays rung: its ringer waits behind us, and need not if we see to it.
        // Relaxed: the lock orders holders among themselves, and `leave` acquires what ringers left.
        word.fetch_or(ATTENDED, Ordering::Relaxed);
        Seat { word }
    }

    /// Answers the bell until it is silent, and goes.
    fn leave(self, mut again: impl FnMut()) {
        let silent = || {
            let swap =
                self.word
                    .compare_exchange(ATTENDED, 0, Ordering::Relaxed, Ordering::Relaxed);
            swap.is_ok()
        };
        while !silent() {
            // Cleared before the work: who rings from here on is heard at the next turn. An exchange rather than a
            // store, and acquiring: it reads the last ring, and all rings before it, and sees what they left.
            self.word.swap(ATTENDED, Ordering::Acquire);
            again();
        }
        core::mem::forget(self);
    }
}

impl Drop for Seat<'_> {
    /// Only when the work panicked: later ringers must not count on us. The bell stays rung for the next who comes.
    fn drop(&mut self) {
        self.word.fetch_and(!ATTENDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
