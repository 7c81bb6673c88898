//! The connections that complete their receives in one queue, served together: by a shard, or by a thread that polls the queue.
//! A group is lent to a polling thread after `lend_polls` consecutive empty polls, and returned to the shard when that thread arms the queue
//! or does not poll for `lend_time` (with the exceptions in `expire`).

mod borrowed;
mod borrower;
mod bulk;
mod check_interval;
mod deferred;
mod empty_poll_sleep;
mod members;
mod reply;
mod sleeper;
mod udp_ports;
mod wakeup_coalescing;

use core::time::Duration;
use std::sync::{Arc, Weak};
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, MutexGuard, RwLock};

use crate::core::Core;
use crate::datagram::udp_port::UdpPort;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, Poller, Ready};
use borrower::Borrower;
use bulk::Bulk;
use check_interval::CheckInterval;
use empty_poll_sleep::EmptyPollSleep;
pub(crate) use members::Member;
use members::Members;
use reply::Reply;
use sleeper::{Active, Loan};
use udp_ports::UdpPorts;
pub(crate) use wakeup_coalescing::COALESCING_DELAY;
use wakeup_coalescing::WakeupCoalescing;

/// Up to so many connections a polling thread tries directly; with more it asks the poller which are ready.
const MAX_DIRECT_POLL: usize = 4;
/// Rounds of serving in one turn of the shard.
const ROUNDS: usize = 8;
/// A polling thread that posts to many connections may stay away for this multiple of `lend_time`: one that answers a batch of
/// completions with as many long messages is busy, and comes back. With few connections it may instead be spinning on its memory,
/// waiting for data that the shard must receive. A thread without a processor may stay away as long.
const BUSY_FACTOR: u32 = 8;
/// How long nothing is lent after a borrower stayed away, at first and at most, in nanoseconds: it doubles each time.
const LEND_BACKOFF: (u64, u64) = (20_000_000, 1_280_000_000);

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
    /// Consecutive empty polls.
    polls: AtomicU32,
    /// The last poll, in nanoseconds.
    last_poll: AtomicU64,
    /// A polling thread serves the group.
    lent: AtomicBool,
    /// It has more than [`MAX_DIRECT_POLL`] members.
    crowded: AtomicBool,
    /// Requests were posted since the timer last expired; set in crowded groups only.
    posted: AtomicBool,
    /// A poll found completions since the timer last expired.
    found: AtomicBool,
    /// State of threads that sleep with the group.
    loan: Loan,
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
    /// A thread serves the group by polling at this moment.
    is_serving: AtomicBool,
    /// The timer that returns the group is set.
    timer_set: AtomicBool,
    /// Nothing is lent before this time, in nanoseconds: the last borrower stayed away while input waited, or the shard serves bulk traffic.
    no_lend_until: AtomicU64,
    /// The interval for the next time.
    lend_backoff: AtomicU64,
    /// Acknowledgements of some members are deferred.
    has_deferred_acks: AtomicBool,
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
            polls: AtomicU32::new(0),
            last_poll: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            posted: AtomicBool::new(false),
            found: AtomicBool::new(false),
            loan: Loan::default(),
            borrower: Borrower::default(),
            check_interval: CheckInterval::default(),
            coalescing: WakeupCoalescing::default(),
            poll_sleep: EmptyPollSleep::default(),
            reply: Reply::default(),
            bulk: Bulk::default(),
            is_serving: AtomicBool::new(false),
            timer_set: AtomicBool::new(false),
            no_lend_until: AtomicU64::new(0),
            lend_backoff: AtomicU64::new(LEND_BACKOFF.0),
            has_deferred_acks: AtomicBool::new(false),
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
    pub(crate) fn add_udp_port(&self, mailbox: &Arc<UdpPort>) {
        self.udp_ports.join(mailbox, &self.lent);
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
        let before = self.last_poll.swap(now.nanos(), Ordering::Relaxed);
        if self.lent.load(Ordering::Acquire) {
            self.serve_polling(now);
            self.udp_ports.poll(&self.core);
            self.note_empty_poll(now);
            return;
        }
        let pause = u128::from(now.nanos().saturating_sub(before));
        let wary = now.nanos() < self.no_lend_until.load(Ordering::Relaxed);
        if wary || pause > self.core.config.lend_time.as_nanos() {
            self.polls.store(0, Ordering::Relaxed);
        } else if self.polls.fetch_add(1, Ordering::Relaxed) + 1 >= self.core.config.lend_polls {
            self.polls.store(0, Ordering::Relaxed);
            self.borrower.set_current_thread();
            borrowed::add(&self.own);
            self.lent.store(true, Ordering::SeqCst);
            self.set_borrower_timer(now);
            self.udp_ports.apply_lent(&self.lent);
            self.serve_polling(now);
            self.udp_ports.poll(&self.core);
        }
    }

    /// The poll found completions: the borrower is active, and serves the group when the queue is empty.
    pub(crate) fn polled_some(&self) {
        self.poll_sleep.reset_empty_polls();
        if self.lent.load(Ordering::Relaxed) && !self.found.load(Ordering::Relaxed) {
            self.found.store(true, Ordering::Relaxed);
        }
    }

    /// Requests were posted to a member: the borrower may be busy with that.
    pub(crate) fn note_post(&self) {
        let lent = self.lent.load(Ordering::Relaxed);
        if !lent || self.reply.held.load(Ordering::Relaxed) {
            self.reply.note_post();
        } else if self.crowded.load(Ordering::Relaxed) && !self.posted.load(Ordering::Relaxed) {
            self.posted.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the timer that checks on the polling thread, unless it is set.
    fn set_borrower_timer(&self, now: Time) {
        self.set_timer(
            now,
            self.core.config.lend_time * self.check_interval.multiple(),
        );
    }

    /// Sets the timer, unless it is set, to the multiple of `lend_time` that is nearest to `after`: the timers of several groups expire
    /// together.
    fn set_timer(&self, now: Time, after: Duration) {
        if !self.timer_set.swap(true, Ordering::SeqCst) {
            let unit = u64::try_from(self.core.config.lend_time.as_nanos()).unwrap_or(u64::MAX);
            let when = (now + after).nanos().saturating_add(unit / 2);
            let when = Time::from_nanos(when - when % unit);
            self.timekeeper.set_timer(when, self.token);
        }
    }

    /// A turn of a polling thread. With long messages it may take longer than `lend_time`.
    fn serve_polling(&self, now: Time) {
        self.is_serving.store(true, Ordering::Relaxed);
        self.poll_members(now);
        self.is_serving.store(false, Ordering::Relaxed);
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
            if !self.lent.load(Ordering::SeqCst) {
                // Returned meanwhile by a thread that may not have seen what was deferred.
                self.send_deferred_acks(false, &mut out);
            }
        }
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
        self.return_to_shard(false);
    }

    /// The same; `late` if the borrower stayed away.
    fn return_to_shard(&self, late: bool) {
        // A thread that arms the queue is about to sleep, not to poll.
        self.polls.store(0, Ordering::Relaxed);
        self.reply.reset();
        let slept = if late {
            self.loan.end()
        } else {
            self.loan.is_held()
        };
        let lent = self.lent.swap(false, Ordering::SeqCst);
        // A thread that slept with the group before and arms the queue serves the group when it sleeps again.
        let listens = if late { lent || slept } else { lent && !slept };
        if late {
            self.unwatch_channel();
        }
        if listens {
            self.arm_poller();
        }
        if lent {
            self.udp_ports.apply_lent(&self.lent);
        }
        if lent || late && slept {
            let mut out = Outbox::new();
            self.send_deferred_acks(late, &mut out);
            self.core.deliver(&mut out);
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
        self.shard.unwatch(&self.poller);
        self.forget();
    }

    fn forget(&self) {
        self.shard.forget(self.token);
        self.timekeeper.forget(self.token);
    }
}

impl ShardTask for Group {
    fn ready(self: Arc<Self>, _: Ready) {
        if self.lent.load(Ordering::Acquire) || self.loan.is_held() {
            // Left unarmed: the borrower serves it, and the timer returns it.
            return;
        }
        for _ in 0..ROUNDS {
            if !self.serve_ready() {
                break;
            }
        }
        self.arm_poller();
    }

    fn expire(self: Arc<Self>, now: Time) {
        self.timer_set.store(false, Ordering::SeqCst);
        if let Some(Active(active)) = self.loan.sleeps() {
            // A sleeping borrower serves the group and sets the timer when it wakes; while it wakes often, this timer is kept instead.
            if active || self.lent.load(Ordering::SeqCst) {
                self.check_interval.grow();
                self.set_borrower_timer(now);
            }
            return;
        }
        if self.compare_bulk(now) {
            return;
        }
        if self.found.swap(false, Ordering::Relaxed) {
            self.last_poll.store(now.nanos(), Ordering::Relaxed);
        }
        let there = Time::from_nanos(self.last_poll.load(Ordering::Relaxed));
        let lent = self.lent.load(Ordering::Relaxed) || self.loan.is_held();
        let (away, usual) = (now.since(there), self.core.config.lend_time);
        let posted = self.posted.swap(false, Ordering::Relaxed);
        if lent && away <= usual {
            // The borrower polls as expected.
            self.lend_backoff.store(LEND_BACKOFF.0, Ordering::Relaxed);
            self.check_interval.grow();
        } else if away > usual * BUSY_FACTOR
            || away > usual && !posted && !self.is_borrower_delayed(lent, there)
        {
            self.check_interval.shrink();
            self.return_to_shard(true);
            if lent && self.serve_ready() {
                self.back_off_lending(now);
            }
        }
        // Still lent, or again.
        if self.lent.load(Ordering::SeqCst) || self.loan.is_held() {
            self.set_borrower_timer(now);
        }
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for Group {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
