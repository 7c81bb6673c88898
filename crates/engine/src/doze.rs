//! Sleeping on a channel of completion queues, and serving their connections meanwhile: a message wakes one thread, not two.
//! It promises what reading the channel does: waiting or not as the descriptor says, signals as for a read, and cancelling.
//! It refuses more than a few queues, and a thread that serves already; those read the channel, and the shards serve.

use core::time::Duration;
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use verbena_nic::{Arm, Cq};
use verbena_stream::Time;

use crate::group::{Group, MOMENT};
use crate::queue::{CompletionQueue, Queue};
use crate::sys::{self, Beside, Channel, beside, poller};

/// Groups that one thread sleeps with; with more, it asks the system about each of them in vain.
const MOST: usize = 4;
/// The shortest sleep that may be a part of a millisecond longer.
const COARSE: Duration = Duration::from_millis(10);

/// A completion queue whose channel threads sleep on, as long as it is there.
#[derive(Debug, Clone)]
pub struct Watched(Weak<Queue>);

impl CompletionQueue {
    /// This queue, for [`Watched::wait`].
    pub fn watched(&self) -> Watched {
        Watched(Arc::downgrade(&self.0))
    }

    /// Takes a ring of the channel that this queue tells, as [`Channel::take`] does, and serves its connections meanwhile.
    pub fn wait(&self, channel: &Channel) -> sys::Result<bool> {
        doze(channel, || [self.watched()])
    }

    /// Sleeps until there is a completion, one of `others` is ready, a signal comes or the time is over, and serves the queue's
    /// connections meanwhile. The queue need not be armed, and may be afterwards; `channel` is the one that it tells. One thread at a
    /// time: another one that armed the queue may not be told.
    pub fn sleep(
        &self,
        channel: &Channel,
        others: &mut [Beside<'_>],
        timeout: Duration,
    ) -> sys::Result<()> {
        self.arm(Arm::Next);
        if !self.0.cq.is_empty() {
            return Ok(());
        }
        if others.is_empty() && timeout >= COARSE && begin(|| [self.0.clone()]) {
            let one = with_groups(|groups| as_one(groups, channel));
            let slept = one.map(|fd| sleep_for(&self.0.cq, channel, fd, poller::millis(timeout)));
            end();
            if let Some(slept) = slept {
                return slept;
            }
        }
        let cq = || [self.watched()];
        Watched::wait_beside(channel, cq, others, Some(timeout)).map(drop)
    }
}

impl Watched {
    /// Takes a ring of the channel that these queues tell, as [`Channel::take`] does, and serves their connections meanwhile.
    /// `all` is asked before it sleeps, and whatever that held is free then.
    pub fn wait<I: IntoIterator<Item = Watched>>(
        channel: &Channel,
        all: impl FnOnce() -> I,
    ) -> sys::Result<bool> {
        doze(channel, all)
    }

    /// Sleeps until the channel that these queues tell is rung, one of `others` is ready, or the time is over, and serves the
    /// queues' connections meanwhile. True if it was rung, and then the ring is taken; the others are marked in any case.
    ///
    /// For programs with descriptors of their own. A signal wakes it, and the channel's own flags do not matter.
    pub fn wait_beside<I: IntoIterator<Item = Watched>>(
        channel: &Channel,
        all: impl FnOnce() -> I,
        others: &mut [Beside<'_>],
        timeout: Option<Duration>,
    ) -> sys::Result<bool> {
        let begun = begin(|| living(all()));
        let rung = sleep_beside(channel, begun, others, timeout);
        if begun {
            end();
        }
        rung
    }
}

thread_local! {
    /// Here and not on the stack: a thread that is cancelled while it sleeps gives its groups back when it ends.
    static DOZE: RefCell<Option<Doze>> = const { RefCell::new(None) };
}

/// Groups that this thread sleeps with.
struct Doze(ArrayVec<Arc<Group>, MOST>);

impl Doze {
    /// None if a group must not be slept with, or there are too many.
    fn begin(queues: impl IntoIterator<Item = Arc<Queue>>) -> Option<Doze> {
        let mut all: ArrayVec<Arc<Group>, MOST> = ArrayVec::new();
        for queue in queues {
            if !queue.lives() {
                return None;
            }
            for group in queue.groups() {
                if all.iter().any(|known| Arc::ptr_eq(known, &group)) {
                    continue;
                }
                if all.is_full() || !group.may_sleep() {
                    // Nothing was borrowed: the shards go on serving.
                    return None;
                }
                all.push(group);
            }
        }
        for group in &all {
            group.fall_asleep();
        }
        Some(Doze(all))
    }
}

impl Drop for Doze {
    fn drop(&mut self) {
        let now = sys::now();
        for group in &self.0 {
            group.wake_up(now);
        }
    }
}

fn doze<I: IntoIterator<Item = Watched>>(
    channel: &Channel,
    queues: impl FnOnce() -> I,
) -> sys::Result<bool> {
    if !channel.waits() || !begin(|| living(queues())) {
        return channel.take();
    }
    let rung = match with_groups(|groups| as_one(groups, channel)) {
        Some(fd) => sleep_with_one(channel, fd),
        None => sleep_with_some(channel),
    };
    end();
    rung
}

/// Those of these queues that are there.
fn living(queues: impl IntoIterator<Item = Watched>) -> impl Iterator<Item = Arc<Queue>> {
    queues.into_iter().filter_map(|one| one.0.upgrade())
}

/// This thread serves the groups of these queues; false if it must not: one that serves already, or that ends, only sleeps.
fn begin<I: IntoIterator<Item = Arc<Queue>>>(queues: impl FnOnce() -> I) -> bool {
    let begun = DOZE.try_with(|place| {
        let mut place = place
            .try_borrow_mut()
            .ok()
            .filter(|place| place.is_none())?;
        *place = Some(Doze::begin(queues())?);
        Some(())
    });
    begun.is_ok_and(|begun| begun.is_some())
}

fn end() {
    let over = DOZE.with(|place| place.borrow_mut().take());
    // Outside: it sets timers.
    drop(over);
}

fn with_groups<R>(work: impl FnOnce(&[Arc<Group>]) -> R) -> R {
    DOZE.with(|place| match &*place.borrow() {
        Some(doze) => work(&doze.0),
        None => work(&[]),
    })
}

/// The descriptor of the one group, if it is one and tells of the channel as well. A number, and nothing that is held or
/// borrowed: the thread may be cancelled while it sleeps.
fn as_one(groups: &[Arc<Group>], channel: &Channel) -> Option<RawFd> {
    match groups {
        [one] if one.hear(channel) => Some(one.as_fd().as_raw_fd()),
        _ => None,
    }
}

fn sleep_with_one(channel: &Channel, fd: RawFd) -> sys::Result<bool> {
    let mut ready = ArrayVec::new();
    loop {
        poller::sleep(fd, &mut ready)?;
        let mut rung = false;
        let serve = || with_groups(|groups| rung = groups.iter().any(|g| g.serve_told(&ready)));
        // A ring of somebody else may have been taken by another.
        if channel.catch(serve) || rung && channel.try_take() {
            return Ok(true);
        }
        with_groups(pay);
    }
}

/// Sleeps for a while, alone with one group, until there is a completion. What this thread completes itself it finds in the queue: to be
/// told of it by an event and a ring would take longer than the serving.
fn sleep_for(cq: &Cq, channel: &Channel, fd: RawFd, millis: i32) -> sys::Result<()> {
    let mut ready = ArrayVec::new();
    let whole = Duration::from_millis(millis.unsigned_abs().into());
    let mut quiet = Quiet::begin(whole);
    let mut left = quiet.as_ref().map_or(millis, |_| poller::millis(MOMENT));
    let mut end = None;
    loop {
        let woken = poller::sleep_for(fd, &mut ready, left)?;
        if !woken && !quiet.as_ref().is_some_and(Quiet::is_over) {
            // A signal, or the time.
            return Ok(());
        }
        cq.disarm();
        if !woken {
            with_groups(look_after_gathering);
        } else if with_groups(|groups| groups.iter().any(|group| group.serve_told(&ready))) {
            // Of another thread, or left from before.
            channel.try_take();
            return Ok(());
        }
        if !cq.is_empty() {
            return Ok(());
        }
        with_groups(pay);
        if let Some(quiet) = quiet.take() {
            quiet.end();
        }
        // Others may have pushed meanwhile: looked at after it was armed.
        cq.arm(Arm::Next);
        if !cq.is_empty() {
            return Ok(());
        }
        let now = sys::now();
        let end = *end.get_or_insert(now + whole);
        left = poller::millis(end.since(now));
        if left == 0 {
            return Ok(());
        }
    }
}

/// Members of this thread's groups keep quiet, so that it must look for itself in a moment. If it wakes instead they speak up.
struct Quiet {
    until: Time,
}

impl Quiet {
    /// None if nobody does; a sleep must be longer than the moment to be worth it.
    fn begin(sleep: Duration) -> Option<Quiet> {
        let gather = |groups: &[Arc<Group>]| {
            let any = groups.iter().map(|group| group.gather());
            any.fold(false, |any, one| any | one)
        };
        (sleep > MOMENT && with_groups(gather)).then(|| Quiet {
            until: sys::now() + MOMENT,
        })
    }

    /// It was the moment that ended, and not a signal that ended it.
    fn is_over(&self) -> bool {
        sys::now() >= self.until
    }

    /// Its thread sleeps on, and does not look for itself.
    fn end(self) {
        with_groups(|groups| groups.iter().for_each(|group| group.scatter()));
    }
}

fn look_after_gathering(groups: &[Arc<Group>]) {
    groups.iter().for_each(|group| group.look_after_gathering());
}

/// Whoever sleeps on owes nothing: what came was nothing that the program is told of, and it will not answer soon.
fn pay(groups: &[Arc<Group>]) {
    groups.iter().for_each(|group| group.pay_before_sleep());
}

fn descriptors() -> ArrayVec<RawFd, MOST> {
    let fd = |group: &Arc<Group>| group.as_fd().as_raw_fd();
    with_groups(|groups| groups.iter().map(fd).collect())
}

fn serve() {
    with_groups(|groups| groups.iter().for_each(|group| group.serve_awake()));
}

fn sleep_with_some(channel: &Channel) -> sys::Result<bool> {
    let fds = descriptors();
    loop {
        let rung = channel.wait_beside(&fds)?;
        if channel.catch(serve) || rung && channel.try_take() {
            return Ok(true);
        }
        with_groups(pay);
    }
}

fn sleep_beside(
    channel: &Channel,
    serves: bool,
    others: &mut [Beside<'_>],
    timeout: Option<Duration>,
) -> sys::Result<bool> {
    let start = sys::now();
    let fds = if serves {
        descriptors()
    } else {
        ArrayVec::new()
    };
    let mut quiet = serves
        .then(|| Quiet::begin(timeout.unwrap_or(Duration::MAX)))
        .flatten();
    loop {
        let left = timeout.map(|limit| limit.saturating_sub(sys::now().since(start)));
        let moment = quiet.as_ref().map(|_| MOMENT);
        let woken = beside::wait(channel, &fds, others, moment.or(left))?;
        let caught = match woken {
            Some(woken) => woken.served && channel.catch(serve),
            None if quiet.as_ref().is_some_and(Quiet::is_over) => {
                channel.catch(|| with_groups(look_after_gathering))
            }
            // A signal, or the time.
            None => return Ok(false),
        };
        if caught || woken.is_some_and(|woken| woken.rung) && channel.try_take() {
            return Ok(true);
        }
        if others.iter().any(|other| other.ready) {
            return Ok(false);
        }
        if serves {
            with_groups(pay);
        }
        if let Some(quiet) = quiet.take() {
            quiet.end();
        }
    }
}
