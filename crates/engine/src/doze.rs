//! Sleeping on a completion channel while serving its queues' connections: a message wakes one thread instead of two.
//! It behaves like a read of the channel: it honours `O_NONBLOCK`, is interrupted by signals, and is a cancellation point. With more than
//! [`MOST`] groups, or in a thread that serves groups already, it only reads the channel, and the shards serve.

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

/// Groups that one thread sleeps with; with more, polling each of them costs too much.
const MOST: usize = 4;
/// Sleeps from this length on may be rounded up to whole milliseconds.
const COARSE: Duration = Duration::from_millis(10);

/// A weak reference to a completion queue on whose channel threads sleep.
#[derive(Debug, Clone)]
pub struct Watched(Weak<Queue>);

impl CompletionQueue {
    /// This queue, for [`Watched::wait`].
    pub fn watched(&self) -> Watched {
        Watched(Arc::downgrade(&self.0))
    }

    /// Takes an event of the channel that this queue signals, as [`Channel::take`] does, and serves its connections meanwhile.
    pub fn wait(&self, channel: &Channel) -> sys::Result<bool> {
        doze(channel, || [self.watched()])
    }

    /// Sleeps until there is a completion, one of `others` is ready, a signal arrives or the time is over, and serves the queue's
    /// connections meanwhile. The queue need not be armed, and may be armed afterwards; `channel` is the one that it signals. Only one
    /// thread at a time: another one that armed the queue may miss its event.
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
    /// Takes an event of the channel that these queues signal, as [`Channel::take`] does, and serves their connections meanwhile.
    /// `all` is called before the sleep; locks that it takes are not held during the sleep.
    pub fn wait<I: IntoIterator<Item = Watched>>(
        channel: &Channel,
        all: impl FnOnce() -> I,
    ) -> sys::Result<bool> {
        doze(channel, all)
    }

    /// Sleeps until the channel that these queues signal has an event, one of `others` is ready, or the time is over, and serves the
    /// queues' connections meanwhile. True if there was an event, which is taken; the ready ones of `others` are marked in any case.
    ///
    /// For programs with descriptors of their own. A signal ends it, and `O_NONBLOCK` of the channel is ignored.
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
    /// Not on the stack: a thread that is cancelled while it sleeps returns its groups when its thread-local storage is destroyed.
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
                    // Nothing was borrowed: the shards continue to serve.
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

/// The queues that still exist.
fn living(queues: impl IntoIterator<Item = Watched>) -> impl Iterator<Item = Arc<Queue>> {
    queues.into_iter().filter_map(|one| one.0.upgrade())
}

/// Borrows the groups of these queues; false if this thread serves groups already, is ending, or may not borrow them: then it only sleeps.
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
    // Dropped outside of the borrow, because it sets timers.
    drop(over);
}

fn with_groups<R>(work: impl FnOnce(&[Arc<Group>]) -> R) -> R {
    DOZE.with(|place| match &*place.borrow() {
        Some(doze) => work(&doze.0),
        None => work(&[]),
    })
}

/// The descriptor of the group, if there is exactly one and its poller also watches the channel. A plain number, which holds
/// no reference: the thread may be cancelled while it sleeps.
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
        // The event may have been taken by another thread already.
        if channel.catch(serve) || rung && channel.try_take() {
            return Ok(true);
        }
        with_groups(pay);
    }
}

/// Sleeps until there is a completion, with one group. Completions of this thread's own turns are found in the queue: an
/// event and its signal would take longer than the turn itself.
fn sleep_for(cq: &Cq, channel: &Channel, fd: RawFd, millis: i32) -> sys::Result<()> {
    let mut ready = ArrayVec::new();
    let whole = Duration::from_millis(millis.unsigned_abs().into());
    let mut quiet = Quiet::begin(whole);
    let mut left = quiet.as_ref().map_or(millis, |_| poller::millis(MOMENT));
    let mut end = None;
    loop {
        let woken = poller::sleep_for(fd, &mut ready, left)?;
        if !woken && !quiet.as_ref().is_some_and(Quiet::is_over) {
            // A signal, or the timeout.
            return Ok(());
        }
        cq.disarm();
        if !woken {
            with_groups(look_after_gathering);
        } else if with_groups(|groups| groups.iter().any(|group| group.serve_told(&ready))) {
            // An event of another thread, or an old one.
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
        // Checked after arming: other threads may have added completions meanwhile.
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

/// Wake-up coalescing is on for this thread's groups, so it must check them itself after [`MOMENT`]. An earlier wake-up ends it.
struct Quiet {
    until: Time,
}

impl Quiet {
    /// None if no group coalesces; the sleep must be longer than [`MOMENT`].
    fn begin(sleep: Duration) -> Option<Quiet> {
        let gather = |groups: &[Arc<Group>]| {
            let any = groups.iter().map(|group| group.gather());
            any.fold(false, |any, one| any | one)
        };
        (sleep > MOMENT && with_groups(gather)).then(|| Quiet {
            until: sys::now() + MOMENT,
        })
    }

    /// The interval is over; otherwise a signal ended the sleep.
    fn is_over(&self) -> bool {
        sys::now() >= self.until
    }

    /// The thread continues to sleep without a check of its own: coalescing ends.
    fn end(self) {
        with_groups(|groups| groups.iter().for_each(|group| group.scatter()));
    }
}

fn look_after_gathering(groups: &[Arc<Group>]) {
    groups.iter().for_each(|group| group.look_after_gathering());
}

/// Sends deferred acknowledgements before sleeping on: no completion was found, so the program does not answer soon.
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
            // A signal, or the timeout.
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
