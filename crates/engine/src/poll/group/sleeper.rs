//! A group on loan to a sleeping thread, which wakes for the group's sockets as well as for its channel, and serves them itself.
//! A borrower that stays away after it woke loses the loan by the shard's timer. Groups with UDP sockets, and groups whose last
//! borrower stayed away while input waited, are not lent.
//!
//! Without the loan a message wakes the shard, which wakes the program: two threads for one message. No timer runs while the borrower
//! sleeps, so an idle program causes no wake-ups; when it wakes, the timer is set unless it is. Both are in the owner's word
//! (`poll/owner.rs`), so that the waking thread and the timer see each other.

use std::os::fd::{AsFd, BorrowedFd};

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::Group;
use crate::poll::owner::Event;
use crate::sys::{self, Channel, ChannelDup, Interest, Ready};

/// The channel that the group's poller watches too, so that a thread with one group sleeps in this poller only.
#[derive(Debug, Default)]
pub(super) struct WatchedChannel(Mutex<Option<ChannelDup>>);

/// The token of that channel in the poller.
const CHANNEL: u64 = u64::MAX;

impl Group {
    /// Threads may sleep with the group.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.lending.is_blocked() && !self.udp_ports.has_any()
    }

    /// A thread begins to sleep with the group.
    pub(crate) fn begin_sleep(&self) {
        self.borrower.set_current_thread();
        self.apply(Event::SleepBegins, sys::now);
        self.finish_polling_before_sleep();
    }

    /// A sleeping thread woke, and is expected back soon.
    pub(crate) fn end_sleep(&self, now: Time) {
        self.borrower.set_last_poll(now);
        self.end_coalescing();
        self.apply(Event::SleepEnds, || now);
        self.prepare_members_for_sleepers();
    }

    /// Makes the group's poller watch this channel; false if it watches another one on which a thread sleeps.
    pub(crate) fn watch_channel(&self, channel: &Channel) -> bool {
        let mut watched = self.channel.0.lock();
        if watched.as_ref().is_some_and(|double| double.is_of(channel)) {
            return true;
        }
        if watched.is_some() && self.owner.load().sleepers() > 1 {
            return false;
        }
        if let Some(before) = watched.take() {
            let _ = self.poller.remove(&before);
        }
        let Ok(double) = channel.duplicate() else {
            return false;
        };
        if self.poller.add(&double, CHANNEL, Interest::READ).is_err() {
            return false;
        }
        *watched = Some(double);
        true
    }

    /// Stops watching the channel, unless a thread sleeps: its events must not wake the shard.
    pub(super) fn unwatch_channel(&self) {
        let mut watched = self.channel.0.lock();
        // A thread is counted before it calls `watch_channel`.
        if self.owner.load().sleepers() == 0
            && let Some(before) = watched.take()
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
