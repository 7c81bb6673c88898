//! Which thread serves a group of connections: the shard, a polling thread, or threads that sleep with it. One enum, one function, one word.
//! Every pair of state and event has an entry in [`Owner::next`], and the state changes nowhere else. A state in which no thread waits for
//! input has the borrower timer set, and every change to [`Owner::Shard`] arms the shard's poller, so that no input is left unserved.
//!
//! The borrower timer is part of the state. A transition sets it or ends it together with the change of owner, so a thread that wakes and the
//! timer that expires cannot both leave it to the other.
//!
//! Atomics outside of the word do not decide which thread serves:
//! - `Group::lending` chooses when to report [`Event::Borrowed`]: consecutive empty polls, and the backoff;
//! - `Group::borrower` is what the timer judges by ([`Judgement`]): the last poll, posts, the borrower's thread;
//! - `Reply`, `Bulk`, `CheckInterval`, `EmptyPollSleep` and `WakeupCoalescing` choose whether and when an event is reported, too;
//! - `Group::has_deferred_acks` and `UdpPorts` are what the actions work on.

use verbena_sync::primitives::{AtomicU32, Ordering};

/// The thread that serves a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// The shard. Its poller is armed, or the shard takes a turn and arms it afterwards.
    Shard {
        /// The timer is set: it has not expired since the last borrower, or ends a window of bulk traffic.
        timer: bool,
    },
    /// A thread that polls. The timer is set. Threads that sleep with the group serve it when the polling thread arms the queue.
    PollingThread(Polling, Sleep),
    /// So many threads that sleep in the group's poller, at least one.
    SleepingThread(u32, SleepTimer),
    /// A thread that slept with the group and is expected to sleep again, or to poll. The timer is set.
    AwaitedThread,
    /// None: the queue was destroyed. So many threads still sleep in the group's poller.
    Retired(u32),
}

/// How a polling thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Polling {
    /// It polls the queue.
    Queue,
    /// It waits for responses in its posts.
    Reply,
}

/// Threads that sleep with a group while another one polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sleep {
    /// None did.
    None,
    /// One that slept is expected to sleep again.
    Awaited,
    /// So many sleep, at least one.
    Asleep(u32),
}

/// The timer while threads sleep: it is not set again while all do, so that an idle program causes no wake-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SleepTimer {
    /// It is not set.
    Unset,
    /// It is set.
    Set,
    /// It is set, and a thread woke since: it is set again when it expires.
    Renewed,
}

/// Input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A thread polled the empty queue often enough to serve the group, or receives the response to its post itself.
    Borrowed(Polling),
    /// The queue was armed, or a response did not arrive in time.
    Armed,
    /// A thread begins to sleep in the group's poller.
    SleepBegins,
    /// It woke.
    SleepEnds,
    /// The timer expired, and judged the borrower.
    Expired(Judgement),
    /// The shard's poller reports the group, and is not armed any more.
    Ready,
    /// The queue was destroyed.
    Retired,
}

/// The timer's judgement of a borrower that does not sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Judgement {
    /// It polled a moment ago.
    Present,
    /// It did not, and is excused: it posts, serves, or has no processor.
    Busy,
    /// It stays away.
    Away,
    /// The shard serves bulk traffic, and the timer ends its window.
    Bulk,
}

/// What the caller does after a transition, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// The shard takes a turn.
    Serve,
    /// The group's poller no longer watches a channel, unless a thread has begun to sleep.
    UnwatchChannel,
    /// The shard's poller is armed.
    ArmPoller,
    /// The timer is set.
    SetTimer,
    /// UDP sockets are lent or returned, as [`OwnerCell::is_lent`] says then.
    ApplyLent,
    /// Deferred acknowledgements are sent.
    SendDeferred {
        /// The borrower stayed away.
        late: bool,
    },
    /// The shards no longer know the group.
    Forget,
}

/// A polling thread arms the queue.
const RETURN: &[Action] = &[Action::ApplyLent, Action::SendDeferred { late: false }];
/// The same, and the shard serves from then on.
const RETURN_TO_SHARD: &[Action] = &[
    Action::ArmPoller,
    Action::ApplyLent,
    Action::SendDeferred { late: false },
];
/// The shard takes the group from a polling thread that stays away.
const TAKE: &[Action] = &[
    Action::UnwatchChannel,
    Action::ArmPoller,
    Action::ApplyLent,
    Action::SendDeferred { late: true },
];
/// The same from a thread that slept.
const TAKE_FROM_AWAITED: &[Action] = &[
    Action::UnwatchChannel,
    Action::ArmPoller,
    Action::SendDeferred { late: true },
];
/// The shard takes the group from a polling thread for a window of bulk traffic.
const TAKE_BULK: &[Action] = &[
    Action::UnwatchChannel,
    Action::ArmPoller,
    Action::SetTimer,
    Action::ApplyLent,
    Action::SendDeferred { late: false },
];
/// The same from a thread that slept.
const TAKE_BULK_FROM_AWAITED: &[Action] = &[
    Action::UnwatchChannel,
    Action::ArmPoller,
    Action::SetTimer,
    Action::SendDeferred { late: false },
];

impl Owner {
    /// The transition table.
    pub(crate) const fn next(self, event: Event) -> (Owner, &'static [Action]) {
        use Action::{ApplyLent, ArmPoller, Forget, Serve, SetTimer};
        use Event::{Armed, Borrowed, Expired, Ready, SleepBegins, SleepEnds};
        use Judgement::{Away, Bulk, Busy, Present};
        use Owner::{AwaitedThread, PollingThread, Retired, Shard, SleepingThread};
        use Sleep::{Asleep, Awaited};
        use SleepTimer::{Renewed, Set, Unset};
        match (self, event) {
            (Retired(n), SleepBegins) => (Retired(n + 1), &[]),
            (Retired(n), SleepEnds) => (Retired(n.saturating_sub(1)), &[]),
            (Retired(_), _) => (self, &[]),
            (_, Event::Retired) => (Retired(self.sleepers()), &[Forget]),

            (Shard { .. }, Ready) => (self, &[Serve, ArmPoller]),
            // Left unarmed: a thread serves, or the timer returns the group.
            (_, Ready) => (self, &[]),

            (PollingThread(..), Borrowed(_)) => (self, &[]),
            (_, Borrowed(by)) if self.is_timer_set() => {
                (PollingThread(by, self.sleep()), &[ApplyLent])
            }
            (_, Borrowed(by)) => (PollingThread(by, self.sleep()), &[SetTimer, ApplyLent]),

            (PollingThread(_, Sleep::None), Armed) => (Shard { timer: true }, RETURN_TO_SHARD),
            // A thread that slept before is about to sleep again: with the shard's poller armed, a message would wake two threads.
            (PollingThread(_, Awaited), Armed) => (AwaitedThread, RETURN),
            (PollingThread(_, Asleep(n)), Armed) => (SleepingThread(n, Set), RETURN),
            (Shard { .. } | SleepingThread(..) | AwaitedThread, Armed) => (self, &[]),

            (Shard { timer: false }, SleepBegins) => (SleepingThread(1, Unset), &[]),
            (Shard { timer: true }, SleepBegins) => (SleepingThread(1, Set), &[]),
            (AwaitedThread, SleepBegins) => (SleepingThread(1, Renewed), &[]),
            (SleepingThread(n, timer), SleepBegins) => (SleepingThread(n + 1, timer), &[]),
            (PollingThread(by, _), SleepBegins) => {
                (PollingThread(by, Asleep(self.sleepers() + 1)), &[])
            }

            (SleepingThread(..=1, Unset), SleepEnds) => (AwaitedThread, &[SetTimer]),
            (SleepingThread(..=1, Set | Renewed), SleepEnds) => (AwaitedThread, &[]),
            (SleepingThread(n, Unset), SleepEnds) => (SleepingThread(n - 1, Renewed), &[SetTimer]),
            (SleepingThread(n, Set | Renewed), SleepEnds) => (SleepingThread(n - 1, Renewed), &[]),
            (PollingThread(by, Asleep(..=1)), SleepEnds) => (PollingThread(by, Awaited), &[]),
            (PollingThread(by, Asleep(n)), SleepEnds) => (PollingThread(by, Asleep(n - 1)), &[]),
            // No thread sleeps.
            (Shard { .. } | PollingThread(..) | AwaitedThread, SleepEnds) => (self, &[]),

            // A thread that sleeps serves the group whatever the judgement, and sets the timer when it wakes; while threads wake often, the
            // timer is kept instead.
            (SleepingThread(n, Renewed), Expired(_)) => (SleepingThread(n, Set), &[SetTimer]),
            (SleepingThread(n, Set | Unset), Expired(_)) => (SleepingThread(n, Unset), &[]),
            (PollingThread(_, Asleep(_)), Expired(_)) => (self, &[SetTimer]),

            (PollingThread(..) | AwaitedThread, Expired(Present | Busy)) => (self, &[SetTimer]),
            (PollingThread(..), Expired(Away)) => (Shard { timer: false }, TAKE),
            (AwaitedThread, Expired(Away)) => (Shard { timer: false }, TAKE_FROM_AWAITED),
            (PollingThread(..), Expired(Bulk)) => (Shard { timer: true }, TAKE_BULK),
            (AwaitedThread, Expired(Bulk)) => (Shard { timer: true }, TAKE_BULK_FROM_AWAITED),
            (Shard { .. }, Expired(Bulk)) => (Shard { timer: true }, &[SetTimer]),
            (Shard { .. }, Expired(_)) => (Shard { timer: false }, &[]),
        }
    }

    /// A polling thread serves the group.
    pub(crate) const fn is_lent(self) -> bool {
        matches!(self, Owner::PollingThread(..))
    }

    /// A thread that borrowed the group serves it, or is expected back.
    pub(crate) const fn has_borrower(self) -> bool {
        !matches!(self, Owner::Shard { .. } | Owner::Retired(_))
    }

    /// The number of threads that sleep in the group's poller.
    pub(crate) const fn sleepers(self) -> u32 {
        match self {
            Owner::SleepingThread(n, _)
            | Owner::PollingThread(_, Sleep::Asleep(n))
            | Owner::Retired(n) => n,
            Owner::Shard { .. } | Owner::PollingThread(..) | Owner::AwaitedThread => 0,
        }
    }

    /// The timer is set.
    const fn is_timer_set(self) -> bool {
        match self {
            Owner::Shard { timer } => timer,
            Owner::SleepingThread(_, timer) => !matches!(timer, SleepTimer::Unset),
            Owner::PollingThread(..) | Owner::AwaitedThread => true,
            Owner::Retired(_) => false,
        }
    }

    /// Threads that sleep with the group, seen from a thread that begins to poll.
    const fn sleep(self) -> Sleep {
        match self {
            Owner::PollingThread(_, sleep) => sleep,
            Owner::SleepingThread(n, _) => Sleep::Asleep(n),
            Owner::AwaitedThread => Sleep::Awaited,
            Owner::Shard { .. } | Owner::Retired(_) => Sleep::None,
        }
    }
}

/// A polling thread serves the group.
const LENT: u32 = 1;
/// It waits for responses in its posts.
const REPLY: u32 = 1 << 1;
/// Threads sleep with the group, or one is expected to.
const SLEEP: u32 = 1 << 2;
/// The timer is set.
const TIMER: u32 = 1 << 3;
/// It is set again when it expires.
const RENEWED: u32 = 1 << 4;
/// The queue was destroyed.
const RETIRED: u32 = 1 << 5;
/// The number of sleeping threads is in the bits from here on. Linux has at most 2^22 threads, so it has room.
const SLEEPERS_SHIFT: u32 = 8;

impl Owner {
    /// The state as a word: flags, and the number of sleeping threads.
    const fn pack(self) -> u32 {
        let timer = if self.is_timer_set() { TIMER } else { 0 };
        let sleep = match self.sleep() {
            Sleep::None => 0,
            Sleep::Awaited | Sleep::Asleep(_) => SLEEP,
        };
        let kind = match self {
            Owner::PollingThread(Polling::Queue, _) => LENT,
            Owner::PollingThread(Polling::Reply, _) => LENT | REPLY,
            Owner::SleepingThread(_, SleepTimer::Renewed) => RENEWED,
            Owner::Shard { .. } | Owner::SleepingThread(..) | Owner::AwaitedThread => 0,
            Owner::Retired(_) => RETIRED,
        };
        kind | sleep | timer | self.sleepers() << SLEEPERS_SHIFT
    }

    /// The inverse.
    const fn unpack(word: u32) -> Owner {
        let sleepers = word >> SLEEPERS_SHIFT;
        let sleep = match (word & SLEEP, sleepers) {
            (0, _) => Sleep::None,
            (_, 0) => Sleep::Awaited,
            _ => Sleep::Asleep(sleepers),
        };
        let timer = word & TIMER != 0;
        match (word & (LENT | REPLY | RETIRED), sleep) {
            (LENT, _) => Owner::PollingThread(Polling::Queue, sleep),
            (0, Sleep::None) => Owner::Shard { timer },
            (0, Sleep::Awaited) => Owner::AwaitedThread,
            (0, Sleep::Asleep(n)) => Owner::SleepingThread(n, SleepTimer::unpack(word)),
            (RETIRED, _) => Owner::Retired(sleepers),
            _ => Owner::PollingThread(Polling::Reply, sleep),
        }
    }
}

impl SleepTimer {
    const fn unpack(word: u32) -> SleepTimer {
        match word & (TIMER | RENEWED) {
            0 => SleepTimer::Unset,
            TIMER => SleepTimer::Set,
            _ => SleepTimer::Renewed,
        }
    }
}

/// The owner of a group in one word, changed by its transitions only.
pub(crate) struct OwnerCell(AtomicU32);

impl Default for OwnerCell {
    /// The shard, without a timer.
    fn default() -> OwnerCell {
        OwnerCell::new(Owner::Shard { timer: false })
    }
}

impl OwnerCell {
    fn new(owner: Owner) -> OwnerCell {
        OwnerCell(AtomicU32::new(owner.pack()))
    }

    /// The owner at this moment.
    pub(crate) fn load(&self) -> Owner {
        Owner::unpack(self.0.load(Ordering::SeqCst))
    }

    /// A polling thread serves the group.
    pub(crate) fn is_lent(&self) -> bool {
        self.0.load(Ordering::SeqCst) & LENT != 0
    }

    /// A polling thread serves the group, and polls the queue: the other way is to wait for responses in posts.
    pub(crate) fn is_lent_to_poller(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (LENT | REPLY) == LENT
    }

    /// Makes the transition; returns what the caller has to do. The word is written only if the state changes.
    #[must_use = "the actions are part of the transition"]
    pub(crate) fn apply(&self, event: Event) -> &'static [Action] {
        self.apply_by(event, Owner::next)
    }

    /// The same with another table, for models that must fail.
    fn apply_by(
        &self,
        event: Event,
        next: impl Fn(Owner, Event) -> (Owner, &'static [Action]),
    ) -> &'static [Action] {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            let (owner, actions) = next(Owner::unpack(word), event);
            let changed = owner.pack();
            if changed == word {
                return actions;
            }
            let exchanged =
                self.0
                    .compare_exchange_weak(word, changed, Ordering::SeqCst, Ordering::SeqCst);
            match exchanged {
                Ok(_) => return actions,
                Err(now) => word = now,
            }
        }
    }
}

impl core::fmt::Debug for OwnerCell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.load().fmt(f)
    }
}

// The path is needed where this file is compiled for loom (tools/models).
#[cfg(test)]
#[path = "owner/tests.rs"]
mod tests;
