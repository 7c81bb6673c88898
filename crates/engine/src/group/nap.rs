//! Empty polls that sleep, on processors with more threads that want to run than they can: a thread that spins there is preempted for whole
//! time slices, and takes the processor from the threads that its completions depend on. One that sleeps wakes when bytes arrive, ahead of
//! threads that compute. The sleep is short, since the program may have other work, and only threads that were preempted do it.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use verbena_stream::Time;

use super::Group;
use crate::preempted;
use crate::sys::{self, poller};

/// Empty polls in a row before one sleeps, about the time of a short answer: a peer that runs on another processor has answered by then, and
/// a program that drains its queue and goes on with other work does not come so far.
const POLLS: u32 = 32;

/// Threads that sleep in polls of a group's queue.
#[derive(Debug, Default)]
pub(super) struct Nap {
    /// A member is there that can wake them.
    pub(super) possible: AtomicBool,
    /// Empty polls since the last that found something.
    empty: AtomicU32,
    /// A thread sleeps in the group's poller.
    taken: AtomicBool,
    /// The polling thread should sleep, by its last empty poll.
    due: AtomicBool,
}

impl Nap {
    /// A poll found something.
    pub(super) fn end_row(&self) {
        if self.empty.load(Ordering::Relaxed) != 0 {
            self.empty.store(0, Ordering::Relaxed);
        }
    }
}

impl Group {
    /// A poll of the lent group's queue found nothing, at this moment; what it served may have changed that.
    pub(super) fn note_empty_poll(&self, now: Time) {
        if !self.nap.possible.load(Ordering::Relaxed) {
            return;
        }
        let competes = preempted::note_empty_poll(now, self.token, POLLS);
        let row = self.nap.empty.load(Ordering::Relaxed).saturating_add(1);
        self.nap.empty.store(row, Ordering::Relaxed);
        let due = competes && row >= POLLS;
        if self.nap.due.load(Ordering::Relaxed) != due {
            self.nap.due.store(due, Ordering::Relaxed);
        }
    }

    /// Sleeps until a member is ready, for `poll_sleep` at most, if this thread should; false if it did not.
    pub(crate) fn nap(&self) -> bool {
        if !self.nap.due.load(Ordering::Relaxed) {
            return false;
        }
        let limit = self.core.config.poll_sleep;
        let lent = self.lent.load(Ordering::Acquire);
        if limit.is_zero() || !lent || self.boxes.any() {
            return false;
        }
        self.pay_before_sleep();
        self.sleep_in_poller(limit);
        preempted::note_sleep(sys::now());
        true
    }

    /// One thread is woken by a member. Others that poll the same queue sleep for the whole time: woken together, they would wait for the
    /// first one, and all of them for a processor. So does a thread while another one serves many members: they are ready until it
    /// has served them.
    fn sleep_in_poller(&self, limit: Duration) {
        if self.asking.is_locked() || self.nap.taken.swap(true, Ordering::Acquire) {
            std::thread::sleep(limit);
        } else {
            poller::nap(&self.poller, limit);
            self.nap.taken.store(false, Ordering::Release);
        }
    }
}
