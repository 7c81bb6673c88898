//! The connections that complete their receives in one queue, served together: by a shard, or by a thread that polls the queue.
//! A group is lent to a polling thread after `lend_polls` consecutive empty polls, and returned to the shard when that thread arms the queue
//! or does not poll for `lend_time` (with the exceptions in `borrower.rs`). Which thread serves is decided by `poll/owner.rs` alone: the group
//! reports events to its [`OwnerCell`] and performs the actions that it returns.

mod borrowed;
mod borrower;
mod bulk;
mod check_interval;
mod deferred;
mod empty_poll_sleep;
mod lending;
mod members;
mod reply;
mod sleeper;
mod udp_ports;
mod wakeup_coalescing;

use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_nic::Outbox;
use verbena_stream::{Time, saturating_nanos};
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::{Mutex, MutexGuard, RwLock};

use crate::core::Core;
use crate::datagram::udp_port::UdpPort;
use crate::error::Error;
use crate::poll::owner::{Action, Event, Judgement, OwnerCell, Polling};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, Poller, Ready};
use borrower::Borrower;
use bulk::Bulk;
use check_interval::CheckInterval;
use empty_poll_sleep::EmptyPollSleep;
use lending::Lending;
pub(crate) use members::Member;
use members::Members;
use reply::Reply;
use sleeper::WatchedChannel;
use udp_ports::UdpPorts;
pub(crate) use wakeup_coalescing::COALESCING_DELAY;
use wakeup_coalescing::WakeupCoalescing;

/// Up to so many connections a polling thread tries directly; with more it asks the poller which are ready.
const MAX_DIRECT_POLL: usize = 4;
/// Rounds of serving in one turn of the shard.
const ROUNDS: usize = 8;

/// The connections of one completion queue.
pub(crate) struct Group {
    /// For the threads that borrow it.
    own: Weak<Group>,
    core: Arc<Core>,
    shard: Arc<Shard>,
    /// The shard with its timer.
    timekeeper: Arc<Shard>,
    token: u64,
    poller: Poller,
    members: RwLock<Members>,
    /// The UDP sockets of its datagram queue pairs.
    pub(crate) udp_ports: UdpPorts,
    /// The thread that serves the group.
    owner: OwnerCell,
    /// When the group is lent to a polling thread.
    lending: Lending,
    /// It has more than [`MAX_DIRECT_POLL`] members.
    crowded: AtomicBool,
    /// The channel of the threads that sleep with the group.
    channel: WatchedChannel,
    /// The last borrower, for the timer.
    borrower: Borrower,
    /// The timer's interval.
    check_interval: CheckInterval,
    /// Wake-up coalescing of its members.
    coalescing: WakeupCoalescing,
    /// Sleeping in empty polls.
    poll_sleep: EmptyPollSleep,
    /// Waiting for answers in posts.
    reply: Reply,
    /// Comparison of shard and polling thread for long messages.
    bulk: Bulk,
    /// Acknowledgements of some members are deferred.
    has_deferred_acks: AtomicBool,
    /// A polling thread reads some members without being woken: they must be told before a thread sleeps.
    polls_awake: AtomicBool,
    /// Buffer for ready members; its holder is the only thread that queries the poller.
    ready_buf: Mutex<Vec<Ready>>,
}

impl Group {
    pub(crate) fn new(core: &Arc<Core>) -> Result<Arc<Group>, Error> {
        let (shard, timekeeper) = (core.shards.pick()?, core.shards.timekeeper()?);
        let poller = Poller::new()?;
        let group = Arc::new_cyclic(|own| Group {
            own: own.clone(),
            core: core.clone(),
            shard,
            timekeeper,
            token: next_token(),
            poller,
            members: RwLock::default(),
            udp_ports: UdpPorts::default(),
            owner: OwnerCell::default(),
            lending: Lending::default(),
            crowded: AtomicBool::new(false),
            channel: WatchedChannel::default(),
            borrower: Borrower::default(),
            check_interval: CheckInterval::default(),
            coalescing: WakeupCoalescing::default(),
            poll_sleep: EmptyPollSleep::default(),
            reply: Reply::default(),
            bulk: Bulk::default(),
            has_deferred_acks: AtomicBool::new(false),
            polls_awake: AtomicBool::new(false),
            ready_buf: Mutex::default(),
        });
        let watched = || -> Result<(), Error> {
            group.timekeeper.serve(group.token, group.clone())?;
            group.shard.serve(group.token, group.clone())?;
            let interest = Interest::READ_ONCE;
            Ok(group.shard.watch(&group.poller, group.token, interest)?)
        };
        watched().inspect_err(|_| group.forget())?;
        Ok(group)
    }

    /// Adds a UDP socket of one of its queue pairs.
    pub(crate) fn add_udp_port(&self, port: &Arc<UdpPort>) {
        self.udp_ports.join(port, &self.owner);
    }

    /// The shard that serves the group while it is not lent.
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// The queue was polled and empty: serves the group if it is lent, and lends it after enough such polls.
    pub(crate) fn polled_empty(&self) {
        let now = sys::now();
        self.serve_or_lend(now);
        borrowed::serve_other_group(self, now);
    }

    fn serve_or_lend(&self, now: Time) {
        let before = self.borrower.note_poll(now);
        if self.owner.is_lent() {
            self.serve_polling(now);
            self.udp_ports.poll(&self.core);
            self.note_empty_poll(now);
        } else if self.lending.is_due(now, before, &self.core.config) {
            self.borrower.set_current_thread();
            borrowed::add(&self.own);
            self.apply(Event::Borrowed(Polling::Queue), || now);
            self.serve_polling(now);
            self.udp_ports.poll(&self.core);
        }
    }

    /// The poll found completions: the borrower is active, and serves the group when the queue is empty.
    pub(crate) fn polled_some(&self) {
        self.poll_sleep.note_completions();
        if self.owner.is_lent() {
            self.borrower.note_found();
        }
    }

    /// Requests were posted to a member: the borrower may be busy with that.
    pub(crate) fn note_post(&self) {
        if !self.owner.is_lent_to_poller() {
            self.reply.note_post();
        } else if self.crowded.load(Ordering::Relaxed) {
            self.borrower.note_post();
        }
    }

    /// Reports an event to the owner, and does what follows from it.
    fn apply(&self, event: Event, now: impl Fn() -> Time) {
        self.perform(event, self.owner.apply(event), now);
    }

    /// Does what follows from an event.
    fn perform(&self, event: Event, actions: &[Action], now: impl Fn() -> Time) {
        for action in actions {
            match *action {
                Action::Serve => self.serve_rounds(),
                Action::UnwatchChannel => self.unwatch_channel(),
                Action::ArmPoller => {
                    self.prepare_members_to_sleep();
                    self.arm_poller();
                }
                Action::SetTimer => self.set_timer(event, now()),
                Action::ApplyLent => self.udp_ports.apply_lent(&self.owner),
                Action::SendDeferred { late } => {
                    self.prepare_members_to_sleep();
                    let mut out = Outbox::new();
                    self.send_deferred_acks(late, &mut out);
                    self.core.deliver(&mut out);
                }
                Action::Forget => {
                    self.shard.unwatch(&self.poller);
                    self.forget();
                }
            }
        }
    }

    /// Sets the timer that checks on the borrower, or ends a window of bulk traffic, to the nearest multiple of `lend_time`: the timers of
    /// several groups expire together.
    fn set_timer(&self, event: Event, now: Time) {
        let lend_time = self.core.config.lend_time;
        let after = match event {
            Event::Expired(Judgement::Bulk) => bulk::WINDOW,
            _ => lend_time * self.check_interval.multiple(),
        };
        let unit = saturating_nanos(lend_time);
        let when = (now + after).nanos().saturating_add(unit / 2);
        let when = Time::from_nanos(when - when % unit);
        self.timekeeper.set_timer(when, self.token);
    }

    /// A turn of a polling thread. With long messages it may take longer than `lend_time`.
    fn serve_polling(&self, now: Time) {
        self.borrower.set_serving(true);
        self.poll_members(now);
        self.borrower.set_serving(false);
    }

    fn poll_members(&self, now: Time) {
        let mut out = Outbox::new();
        let mut owes = false;
        let (mut at, mut all) = (0, 1);
        while at < all {
            // The lock is released for the turn: a member may leave in it, and then another one is served by the next poll.
            let connection = {
                let members = self.members.read();
                all = members.list.len();
                if all > MAX_DIRECT_POLL {
                    break;
                }
                members.list.get(at).cloned()
            };
            if let Some(connection) = connection {
                owes |= connection.poll_turn(now, &mut out);
            }
            at += 1;
        }
        if owes {
            self.note_deferred_acks();
        }
        if !self.owner.is_lent() {
            // Returned meanwhile by a thread that may not have seen what was deferred.
            self.send_deferred_acks(false, &mut out);
            self.prepare_members_to_sleep();
        }
        self.prepare_members_for_sleepers();
        self.core.deliver(&mut out);
        if all > MAX_DIRECT_POLL {
            self.serve_ready();
        }
    }

    /// Serves every ready member; false if none was ready, or another thread does so.
    fn serve_ready(&self) -> bool {
        let Some(ready) = self.poll_ready() else {
            return false;
        };
        let mut out = Outbox::new();
        self.for_each_ready(&ready, |connection, _| connection.turn(&mut out));
        let any = !ready.is_empty();
        drop(ready);
        self.core.deliver(&mut out);
        any
    }

    /// The ready members; none if another thread queries the poller.
    fn poll_ready(&self) -> Option<MutexGuard<'_, Vec<Ready>>> {
        let mut ready = self.ready_buf.try_lock()?;
        let at_once = Some(Duration::ZERO);
        self.poller.wait(&mut ready, at_once).ok()?;
        Some(ready)
    }

    /// Calls `serve` for every member among these.
    fn for_each_ready(&self, ready: &[Ready], mut serve: impl FnMut(&dyn Member, Ready)) {
        for one in ready {
            let member = self.members.read().find(one.token);
            if let Some(member) = member {
                serve(&*member, *one);
            }
        }
    }

    /// The queue is being armed: the shard serves the group again.
    ///
    /// Not if its last borrower slept: it probably is about to sleep again, and serves the group then. If not, the timer returns
    /// the group.
    pub(crate) fn take_back(&self) {
        self.forget_polls();
        self.apply(Event::Armed, sys::now);
    }

    /// A thread that arms the queue is about to sleep, not to poll.
    fn forget_polls(&self) {
        self.lending.reset_polls();
        self.reply.reset();
    }

    /// A turn of the shard.
    fn serve_rounds(&self) {
        for _ in 0..ROUNDS {
            if !self.serve_ready() {
                break;
            }
        }
    }

    /// Has the shard woken by the next ready member, or at once if one is ready.
    fn arm_poller(&self) {
        // Fails if the queue was destroyed meanwhile; no wake-up is needed then.
        let _ = self
            .shard
            .arm(&self.poller, self.token, Interest::READ_ONCE);
    }

    /// The queue was destroyed.
    pub(crate) fn retire(&self) {
        self.apply(Event::Retired, sys::now);
    }

    fn forget(&self) {
        self.shard.forget(self.token);
        self.timekeeper.forget(self.token);
    }
}

impl ShardTask for Group {
    fn ready(self: Arc<Self>, _: Ready) {
        self.apply(Event::Ready, sys::now);
    }

    fn expire(self: Arc<Self>, now: Time) {
        let owner = self.owner.load();
        let judgement = self.judge_borrower(owner, now);
        match judgement {
            Judgement::Present if owner.has_borrower() && owner.sleepers() == 0 => {
                self.lending.reset_backoff();
                self.check_interval.grow();
            }
            Judgement::Away => {
                self.check_interval.shrink();
                self.forget_polls();
            }
            Judgement::Bulk if owner.is_lent() => self.forget_polls(),
            Judgement::Present | Judgement::Busy | Judgement::Bulk => {}
        }
        let event = Event::Expired(judgement);
        let actions = self.owner.apply(event);
        if owner.sleepers() > 0 && actions.contains(&Action::SetTimer) {
            self.check_interval.grow();
        }
        self.perform(event, actions, || now);
        let returned = actions.contains(&Action::ArmPoller);
        let away = returned && judgement == Judgement::Away;
        if away && (self.serve_ready() | self.udp_ports.poll(&self.core)) {
            self.lending.back_off(now);
        }
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for Group {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Group")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
