//! A group on loan to a thread that sleeps: it wakes for the group's sockets as well as for its channel, and serves them itself.
//! It promises what lending to a thread that polls does: whoever stays away with the loan loses it, by the shard's timer.
//! It refuses groups with mailboxes, and those whose last borrower stayed away while something waited.
//!
//! Without the loan a message wakes the shard, which wakes the program: two threads for one message. While the borrower
//! sleeps no timer runs, so that an idle program wakes nobody; when it wakes, one is set if none is. `asleep` and `timed`
//! are each written before the other is looked at, by who wakes and by the timer, so that one of them sees the other.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use verbena_nic::Outbox;
use verbena_stream::Time;

use super::Group;
use crate::sys::{self, Channel, Double, Interest, Ready};

/// Who sleeps with the group.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// A sleeper has it, or is about to come back for it: the shard is not told.
    held: AtomicBool,
    /// Threads that sleep now.
    asleep: AtomicU32,
    /// One woke since the timer last looked.
    woke: AtomicBool,
    /// The channel that is watched beside the members: who sleeps with one group sleeps in its poller alone.
    channel: Mutex<Option<Double>>,
}

/// The name of that channel in the poller.
const CHANNEL: u64 = u64::MAX;

impl Loan {
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Nobody has it any more; true if somebody had.
    pub(super) fn end(&self) -> bool {
        self.held.swap(false, Ordering::SeqCst)
    }

    /// The timer looks, and runs no more unless this says so.
    pub(super) fn sleeps(&self) -> Option<Active> {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return None;
        }
        Some(Active(self.woke.swap(false, Ordering::Relaxed)))
    }
}

/// Whether a sleeper woke since the timer last looked.
pub(super) struct Active(pub(super) bool);

impl Group {
    /// Threads may sleep with it.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.is_wary() && !self.boxes.any()
    }

    /// Its last borrower stayed away while something waited, not long ago.
    fn is_wary(&self) -> bool {
        let until = self.wary_until.load(Ordering::Relaxed);
        // Most groups never had a reason, and need not know the time.
        if until == 0 {
            return false;
        }
        let wary = sys::now().nanos() < until;
        if !wary {
            // It is over. Fails if there is another reason by now, which counts the next time.
            let _ =
                self.wary_until
                    .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        wary
    }

    /// A thread goes to sleep with it.
    pub(crate) fn fall_asleep(&self) {
        self.absence.begin();
        self.loan.asleep.fetch_add(1, Ordering::SeqCst);
        self.loan.held.store(true, Ordering::SeqCst);
        self.pay_before_sleep();
    }

    /// It wakes, and is expected back soon.
    pub(crate) fn wake_up(&self, now: Time) {
        self.polled.store(now.nanos(), Ordering::Relaxed);
        self.loan.woke.store(true, Ordering::Relaxed);
        self.scatter();
        self.loan.asleep.fetch_sub(1, Ordering::SeqCst);
        self.time(now);
    }

    /// This channel's rings are told of by the group's poller; false if another one's are, on which somebody sleeps.
    pub(crate) fn hear(&self, channel: &Channel) -> bool {
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
        let Ok(double) = channel.double() else {
            return false;
        };
        if self.poller.add(&double, CHANNEL, Interest::READ).is_err() {
            return false;
        }
        *heard = Some(double);
        true
    }

    /// No channel's rings are told of any more, unless somebody sleeps: a shard that listens is not meant.
    pub(super) fn hear_nobody(&self) {
        let mut heard = self.loan.channel.lock();
        // Who falls asleep says so before it asks to hear.
        if self.loan.asleep.load(Ordering::SeqCst) == 0
            && let Some(before) = heard.take()
        {
            let _ = self.poller.remove(&before);
        }
    }

    /// These members are ready: the sleeper serves them. True if the channel is rung.
    pub(crate) fn serve_told(&self, ready: &[Ready]) -> bool {
        let mut out = Outbox::new();
        self.serve_sleeping(ready, &mut out);
        self.core.deliver(&mut out);
        ready.iter().any(|one| one.token == CHANNEL)
    }

    /// The same for whoever is ready now.
    pub(crate) fn serve_awake(&self) {
        let mut out = Outbox::new();
        if let Some(ready) = self.ask() {
            self.serve_sleeping(&ready, &mut out);
        }
        self.core.deliver(&mut out);
    }

    /// Acknowledgements are put off as one who polls does.
    fn serve_sleeping(&self, ready: &[Ready], out: &mut Outbox) {
        if ready.iter().any(|one| one.readable && one.token != CHANNEL) {
            self.note_gathered();
        }
        let (now, mut owes) = (sys::now(), false);
        self.each(ready, |connection, one| {
            if one.writable {
                // There is room again.
                connection.turn(out);
            } else {
                owes |= connection.poll_turn(now, out);
            }
        });
        if owes {
            self.owe();
        }
    }
}

impl AsFd for Group {
    /// Readable while a member is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
