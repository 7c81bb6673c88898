//! A group on loan to a sleeping thread, which wakes for the group's sockets as well as for its channel, and serves them itself.
//! A borrower that stays away after it woke loses the loan by the shard's timer. Groups with UDP sockets, and groups whose last
//! borrower stayed away while input waited, are not lent.
//!
//! Without the loan a message wakes the shard, which wakes the program: two threads for one message. No timer runs while the borrower
//! sleeps, so an idle program causes no wake-ups; when it wakes, the timer is set unless it is. The waking thread and the timer each write
//! one of `asleep` and `timer_set` before they read the other, so that at least one of them sees the other's write.

use std::os::fd::{AsFd, BorrowedFd};
use verbena_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::Group;
use crate::sys::{self, Channel, ChannelDup, Interest, Ready};

/// State of the loan to sleeping threads.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// A sleeper has the group, or is expected back: the shard's watch is not armed.
    held: AtomicBool,
    /// Threads that sleep now.
    asleep: AtomicU32,
    /// One woke since the timer last expired.
    woke: AtomicBool,
    /// The channel that the group's poller watches too, so that a thread with one group sleeps in this poller only.
    channel: Mutex<Option<ChannelDup>>,
}

/// The token of that channel in the poller.
const CHANNEL: u64 = u64::MAX;

impl Loan {
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Ends the loan; true if there was one.
    pub(super) fn end(&self) -> bool {
        self.held.swap(false, Ordering::SeqCst)
    }

    /// For the timer, which is not set again unless the result says so; none if no thread sleeps.
    pub(super) fn sleeps(&self) -> Option<Active> {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return None;
        }
        Some(Active(self.woke.swap(false, Ordering::Relaxed)))
    }
}

/// Whether a sleeper woke since the timer last expired.
pub(super) struct Active(pub(super) bool);

impl Group {
    /// Threads may sleep with the group.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.is_lending_blocked() && !self.udp_ports.has_any()
    }

    /// The last borrower stayed away while input waited, not long ago.
    fn is_lending_blocked(&self) -> bool {
        let until = self.no_lend_until.load(Ordering::Relaxed);
        // For most groups it is 0, and the clock need not be read.
        if until == 0 {
            return false;
        }
        let wary = sys::now().nanos() < until;
        if !wary {
            // It has expired. The exchange fails if a new time was set meanwhile, which counts at the next call.
            let _ =
                self.no_lend_until
                    .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        wary
    }

    /// A thread begins to sleep with the group.
    pub(crate) fn begin_sleep(&self) {
        self.borrower.set_current_thread();
        self.loan.asleep.fetch_add(1, Ordering::SeqCst);
        self.loan.held.store(true, Ordering::SeqCst);
        self.flush_acks_before_sleep();
    }

    /// A sleeping thread woke, and is expected back soon.
    pub(crate) fn end_sleep(&self, now: Time) {
        self.last_poll.store(now.nanos(), Ordering::Relaxed);
        self.loan.woke.store(true, Ordering::Relaxed);
        self.end_coalescing();
        self.loan.asleep.fetch_sub(1, Ordering::SeqCst);
        self.set_borrower_timer(now);
    }

    /// Makes the group's poller watch this channel; false if it watches another one on which a thread sleeps.
    pub(crate) fn watch_channel(&self, channel: &Channel) -> bool {
        let mut heard = self.loan.channel.lock();
        if heard.as_ref().is_some_and(|double| double.is_of(channel)) {
            return true;
        }
        if heard.is_some() && self.loan.asleep.load(Ordering::SeqCst) > 1 {
            return false;
        }
        if let Some(before) = heard.take() {
            let _ = self.poller.remove(&before);
        }
        let Ok(double) = channel.duplicate() else {
            return false;
        };
        if self.poller.add(&double, CHANNEL, Interest::READ).is_err() {
            return false;
        }
        *heard = Some(double);
        true
    }

    /// Stops watching the channel, unless a thread sleeps: its events must not wake the shard.
    pub(super) fn unwatch_channel(&self) {
        let mut heard = self.loan.channel.lock();
        // A thread increments `asleep` before it calls `watch_channel`.
        if self.loan.asleep.load(Ordering::SeqCst) == 0
            && let Some(before) = heard.take()
        {
            let _ = self.poller.remove(&before);
        }
    }

    /// Serves these ready members for a sleeper. True if the channel has an event.
    pub(crate) fn serve_reported(&self, ready: &[Ready]) -> bool {
        let mut out = Outbox::new();
        self.serve_sleeping(ready, &mut out);
        self.core.deliver(&mut out);
        ready.iter().any(|one| one.token == CHANNEL)
    }

    /// The same for the members that are ready now.
    pub(crate) fn serve_ready_now(&self) {
        let mut out = Outbox::new();
        if let Some(ready) = self.poll_ready() {
            self.serve_sleeping(&ready, &mut out);
        }
        self.core.deliver(&mut out);
    }

    /// Acknowledgements are deferred as in a polling thread.
    fn serve_sleeping(&self, ready: &[Ready], out: &mut Outbox) {
        if ready.iter().any(|one| one.readable && one.token != CHANNEL) {
            self.note_coalesced_wakeup();
        }
        let (now, mut owes) = (sys::now(), false);
        self.for_each_ready(ready, |connection, one| {
            if one.writable {
                // There is room to write again.
                connection.turn(out);
            } else {
                owes |= connection.poll_turn(now, out);
            }
        });
        if owes {
            self.note_deferred_acks();
        }
    }
}

impl AsFd for Group {
    /// Readable while a member is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
