//! Empty polls that sleep, on processors with more runnable threads than they can run: a spinning thread is preempted for whole
//! time slices, and takes the processor from the threads that its completions depend on. One that sleeps wakes when bytes or datagrams arrive, ahead of
//! threads that compute. The sleep is short, since the program may have other work, and only threads that were preempted sleep.

use core::time::Duration;
use std::os::fd::AsFd;

use arrayvec::ArrayVec;
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};

use super::Group;
use crate::poll::preemption;
use crate::sys;
use crate::sys::poller::{self, MAX_OTHERS};

/// Consecutive empty polls of a thread before one sleeps, about the time of a short response: a peer on another processor has responded by then,
/// and a program that drains its queue and goes on with other work does not poll so often.
const POLLS: u32 = 32;

/// Threads that sleep in polls of a group's queue.
#[derive(Debug, Default)]
pub(super) struct EmptyPollSleep {
    /// There is a member whose input ends the sleep.
    pub(super) possible: AtomicBool,
    /// The last poll of any thread was empty.
    was_empty: AtomicBool,
    /// A thread sleeps in the group's poller.
    has_sleeper: AtomicBool,
    /// The polling thread should sleep, as of its last empty poll.
    due: AtomicBool,
}

impl EmptyPollSleep {
    /// A poll of this thread found completions. Of several threads that poll one queue, those that find nothing are the ones to sleep.
    pub(super) fn note_completions(&self) {
        if self.was_empty.load(Ordering::Relaxed) {
            self.was_empty.store(false, Ordering::Relaxed);
            preemption::note_completions();
        }
    }

    /// As after the polls of a thread that was preempted.
    #[cfg(test)]
    pub(super) fn set_due(&self) {
        self.due.store(true, Ordering::Relaxed);
    }
}

impl Group {
    /// Counts an empty poll of the lent group's queue.
    pub(super) fn note_empty_poll(&self, now: Time) {
        if !self.poll_sleep.possible.load(Ordering::Relaxed) && !self.udp_ports.has_any() {
            return;
        }
        let due = preemption::note_empty_poll(now, self.token, POLLS);
        self.poll_sleep.was_empty.store(true, Ordering::Relaxed);
        if self.poll_sleep.due.load(Ordering::Relaxed) != due {
            self.poll_sleep.due.store(due, Ordering::Relaxed);
        }
    }

    /// Sleeps until a member is ready, for `poll_sleep` at most, if that is due; false if it did not.
    pub(crate) fn sleep_if_due(&self) -> bool {
        if !self.poll_sleep.due.load(Ordering::Relaxed) {
            return false;
        }
        let limit = self.core.config.poll_sleep;
        if limit.is_zero() || !self.owner.is_lent() || self.udp_ports.are_many() {
            return false;
        }
        self.finish_polling_before_sleep();
        self.sleep_in_poller(limit);
        preemption::note_sleep(sys::now());
        true
    }

    /// One thread at a time is woken by a member. Others that poll the same queue sleep for the whole time: woken together, they would wait for
    /// the first one, and all of them for a processor. So does a thread while another one serves a crowded group: its members stay ready until they
    /// are served. True if a member woke it, or a UDP socket, which is not in the poller.
    pub(super) fn sleep_in_poller(&self, limit: Duration) -> bool {
        if self.ready_buf.is_locked() || self.poll_sleep.has_sleeper.swap(true, Ordering::Acquire) {
            sys::sleep(limit);
            return false;
        }
        let ports = self.udp_ports.watched();
        let sockets: ArrayVec<_, MAX_OTHERS> = ports.iter().map(|port| port.as_fd()).collect();
        let is_woken = poller::sleep_until_ready(&self.poller, &sockets, limit);
        self.poll_sleep.has_sleeper.store(false, Ordering::Release);
        is_woken
    }
}
