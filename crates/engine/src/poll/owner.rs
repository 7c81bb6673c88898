//! Which thread serves a group of connections: the shard, a polling thread, or threads that sleep with it. One enum, one function, one word.
//! Every pair of state and event has an entry in [`Owner::next`], and the state changes nowhere else. A state in which no thread waits for
//! input has the borrower timer set, and every change to [`Owner::Shard`] arms the shard's poller, so that no input is left unserved.
//!
//! The borrower timer is part of the state. A transition sets it or ends it together with the change of owner, so a thread that wakes and the
//! timer that expires cannot both leave it to the other.
//!
//! Atomics outside of the word do not decide which thread serves:
//! - `Group::lending` chooses when to report [`Event::EmptyPolls`]: consecutive empty polls, and the backoff;
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
    /// A thread that polls the queue. The timer is set.
    PollingThread {
        /// The thread waits for responses in its posts, and does not poll the queue.
        awaits_reply: bool,
        /// Threads that sleep with the group: they serve it when the polling thread arms the queue.
        sleep: Sleep,
    },
    /// Threads that sleep in the group's poller.
    SleepingThread {
        /// Their number, at least one.
        sleepers: u32,
        /// One woke since the timer last expired.
        woke: bool,
        /// The timer is set. It is not set again while all sleep, so that an idle program causes no wake-ups.
        timer: bool,
    },
    /// A thread that slept with the group and is expected to sleep again, or to poll. The timer is set.
    AwaitedThread,
    /// None: the queue was destroyed.
    Retired {
        /// Threads that still sleep in the group's poller.
        sleepers: u32,
    },
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

/// Input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A thread polled the empty queue often enough to serve the group.
    EmptyPolls,
    /// A posting thread receives the response itself.
    AwaitReply,
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

impl Owner {
    /// The transition table.
    pub(crate) const fn next(self, event: Event) -> (Owner, &'static [Action]) {
        use Action::{ApplyLent, ArmPoller, SendDeferred, SetTimer, UnwatchChannel};
        use Owner::{AwaitedThread, PollingThread, Retired, Shard, SleepingThread};
        match (self, event) {
            (Retired { sleepers }, Event::SleepBegins) => (retired(sleepers + 1), &[]),
            (Retired { sleepers }, Event::SleepEnds) => (retired(sleepers.saturating_sub(1)), &[]),
            (Retired { .. }, _) => (self, &[]),
            (_, Event::Retired) => (retired(self.sleepers()), &[Action::Forget]),

            (Shard { .. }, Event::Ready) => (self, &[Action::Serve, ArmPoller]),
            // Left unarmed: a thread serves, or the timer returns the group.
            (_, Event::Ready) => (self, &[]),

            (PollingThread { .. }, Event::EmptyPolls | Event::AwaitReply) => (self, &[]),
            (_, Event::EmptyPolls | Event::AwaitReply) => {
                let lent = PollingThread {
                    awaits_reply: matches!(event, Event::AwaitReply),
                    sleep: self.sleep(),
                };
                if self.is_timer_set() {
                    (lent, &[ApplyLent])
                } else {
                    (lent, &[SetTimer, ApplyLent])
                }
            }

            // A thread that slept before and arms the queue is about to sleep again: arming the shard's poller would wake two threads.
            (PollingThread { sleep, .. }, Event::Armed) => {
                const RETURN: &[Action] = &[ApplyLent, SendDeferred { late: false }];
                const RETURN_TO_SHARD: &[Action] =
                    &[ArmPoller, ApplyLent, SendDeferred { late: false }];
                match sleep {
                    Sleep::None => (Shard { timer: true }, RETURN_TO_SHARD),
                    Sleep::Awaited => (AwaitedThread, RETURN),
                    Sleep::Asleep(sleepers) => (sleeping(sleepers, false, true), RETURN),
                }
            }
            (Shard { .. } | SleepingThread { .. } | AwaitedThread, Event::Armed) => (self, &[]),

            (Shard { timer }, Event::SleepBegins) => (sleeping(1, false, timer), &[]),
            (AwaitedThread, Event::SleepBegins) => (sleeping(1, true, true), &[]),
            (
                SleepingThread {
                    sleepers,
                    woke,
                    timer,
                },
                Event::SleepBegins,
            ) => (sleeping(sleepers + 1, woke, timer), &[]),
            (PollingThread { awaits_reply, .. }, Event::SleepBegins) => {
                let sleep = Sleep::Asleep(self.sleepers() + 1);
                (
                    PollingThread {
                        awaits_reply,
                        sleep,
                    },
                    &[],
                )
            }

            (
                SleepingThread {
                    sleepers, timer, ..
                },
                Event::SleepEnds,
            ) => {
                let actions: &[Action] = if timer { &[] } else { &[SetTimer] };
                match sleepers {
                    0 | 1 => (AwaitedThread, actions),
                    _ => (sleeping(sleepers - 1, true, true), actions),
                }
            }
            (
                PollingThread {
                    awaits_reply,
                    sleep: Sleep::Asleep(sleepers),
                },
                Event::SleepEnds,
            ) => {
                let sleep = match sleepers {
                    0 | 1 => Sleep::Awaited,
                    _ => Sleep::Asleep(sleepers - 1),
                };
                (
                    PollingThread {
                        awaits_reply,
                        sleep,
                    },
                    &[],
                )
            }
            // No thread sleeps.
            (Shard { .. } | PollingThread { .. } | AwaitedThread, Event::SleepEnds) => (self, &[]),

            // A thread that sleeps serves the group whatever the judgement, and sets the timer when it wakes; while threads wake often, the
            // timer is kept instead.
            (
                SleepingThread {
                    sleepers,
                    woke: true,
                    ..
                },
                Event::Expired(_),
            ) => (sleeping(sleepers, false, true), &[SetTimer]),
            (
                SleepingThread {
                    sleepers,
                    woke: false,
                    ..
                },
                Event::Expired(_),
            ) => (sleeping(sleepers, false, false), &[]),
            (
                PollingThread {
                    sleep: Sleep::Asleep(_),
                    ..
                },
                Event::Expired(_),
            ) => (self, &[SetTimer]),
            (
                PollingThread { .. } | AwaitedThread,
                Event::Expired(Judgement::Present | Judgement::Busy),
            ) => (self, &[SetTimer]),
            (PollingThread { .. }, Event::Expired(Judgement::Away)) => {
                const RETURN_LATE: &[Action] = &[
                    UnwatchChannel,
                    ArmPoller,
                    ApplyLent,
                    SendDeferred { late: true },
                ];
                (Shard { timer: false }, RETURN_LATE)
            }
            (AwaitedThread, Event::Expired(Judgement::Away)) => {
                const RETURN_LATE: &[Action] =
                    &[UnwatchChannel, ArmPoller, SendDeferred { late: true }];
                (Shard { timer: false }, RETURN_LATE)
            }
            (PollingThread { .. }, Event::Expired(Judgement::Bulk)) => {
                const GIVE_TO_SHARD: &[Action] = &[
                    UnwatchChannel,
                    ArmPoller,
                    SetTimer,
                    ApplyLent,
                    SendDeferred { late: false },
                ];
                (Shard { timer: true }, GIVE_TO_SHARD)
            }
            (AwaitedThread, Event::Expired(Judgement::Bulk)) => {
                const GIVE_TO_SHARD: &[Action] = &[
                    UnwatchChannel,
                    ArmPoller,
                    SetTimer,
                    SendDeferred { late: false },
                ];
                (Shard { timer: true }, GIVE_TO_SHARD)
            }
            (Shard { .. }, Event::Expired(Judgement::Bulk)) => (Shard { timer: true }, &[SetTimer]),
            (Shard { .. }, Event::Expired(_)) => (Shard { timer: false }, &[]),
        }
    }

    /// A polling thread serves the group.
    pub(crate) const fn is_lent(self) -> bool {
        matches!(self, Owner::PollingThread { .. })
    }

    /// A thread that borrowed the group serves it, or is expected back.
    pub(crate) const fn has_borrower(self) -> bool {
        matches!(
            self,
            Owner::PollingThread { .. } | Owner::SleepingThread { .. } | Owner::AwaitedThread
        )
    }

    /// The number of threads that sleep in the group's poller.
    pub(crate) const fn sleepers(self) -> u32 {
        match self {
            Owner::SleepingThread { sleepers, .. }
            | Owner::PollingThread {
                sleep: Sleep::Asleep(sleepers),
                ..
            }
            | Owner::Retired { sleepers } => sleepers,
            Owner::Shard { .. } | Owner::PollingThread { .. } | Owner::AwaitedThread => 0,
        }
    }

    /// The timer is set.
    pub(crate) const fn is_timer_set(self) -> bool {
        match self {
            Owner::Shard { timer } | Owner::SleepingThread { timer, .. } => timer,
            Owner::PollingThread { .. } | Owner::AwaitedThread => true,
            Owner::Retired { .. } => false,
        }
    }

    /// Threads that sleep with the group, seen from a thread that begins to poll.
    const fn sleep(self) -> Sleep {
        match self {
            Owner::PollingThread { sleep, .. } => sleep,
            Owner::SleepingThread { sleepers, .. } => Sleep::Asleep(sleepers),
            Owner::AwaitedThread => Sleep::Awaited,
            Owner::Shard { .. } | Owner::Retired { .. } => Sleep::None,
        }
    }
}

const fn sleeping(sleepers: u32, woke: bool, timer: bool) -> Owner {
    Owner::SleepingThread {
        sleepers,
        woke,
        timer,
    }
}

const fn retired(sleepers: u32) -> Owner {
    Owner::Retired { sleepers }
}

/// A polling thread serves the group.
const LENT: u32 = 1;
/// The polling thread waits for responses in its posts.
const AWAITS_REPLY: u32 = 1 << 1;
/// Threads sleep with the group, or one is expected to.
const SLEEP: u32 = 1 << 2;
/// A sleeping thread woke since the timer last expired.
const WOKE: u32 = 1 << 3;
/// The timer is set.
const TIMER: u32 = 1 << 4;
/// The queue was destroyed.
const RETIRED: u32 = 1 << 5;
/// The number of sleeping threads is in the bits from here on. Linux has at most 2^22 threads, so it has room.
const SLEEPERS_SHIFT: u32 = 8;

impl Owner {
    /// The state as a word: flags, and the number of sleeping threads.
    const fn pack(self) -> u32 {
        let timer = if self.is_timer_set() { TIMER } else { 0 };
        let flags = match self {
            Owner::Shard { .. } => 0,
            Owner::PollingThread {
                awaits_reply,
                sleep,
            } => {
                let reply = if awaits_reply { AWAITS_REPLY } else { 0 };
                let sleep = if matches!(sleep, Sleep::None) {
                    0
                } else {
                    SLEEP
                };
                LENT | reply | sleep
            }
            Owner::SleepingThread { woke, .. } => SLEEP | if woke { WOKE } else { 0 },
            Owner::AwaitedThread => SLEEP,
            Owner::Retired { .. } => RETIRED,
        };
        flags | timer | self.sleepers() << SLEEPERS_SHIFT
    }

    /// The inverse.
    const fn unpack(word: u32) -> Owner {
        let sleepers = word >> SLEEPERS_SHIFT;
        let sleep = match (word & SLEEP != 0, sleepers) {
            (false, _) => Sleep::None,
            (true, 0) => Sleep::Awaited,
            (true, _) => Sleep::Asleep(sleepers),
        };
        let timer = word & TIMER != 0;
        if word & RETIRED != 0 {
            return retired(sleepers);
        }
        if word & LENT != 0 {
            let awaits_reply = word & AWAITS_REPLY != 0;
            return Owner::PollingThread {
                awaits_reply,
                sleep,
            };
        }
        match sleep {
            Sleep::None => Owner::Shard { timer },
            Sleep::Awaited => Owner::AwaitedThread,
            Sleep::Asleep(_) => sleeping(sleepers, word & WOKE != 0, timer),
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
        self.0.load(Ordering::Relaxed) & (LENT | AWAITS_REPLY) == LENT
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

#[cfg(test)]
mod tests;
