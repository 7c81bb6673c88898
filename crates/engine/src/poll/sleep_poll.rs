//! Sleeping on a completion channel while serving its queues' connections: a message wakes one thread instead of two.
//! It behaves like a read of the channel: it honours `O_NONBLOCK`, is interrupted by signals, and is a cancellation point. With more than
//! [`MAX_GROUPS`] groups, or in a thread that serves groups already, it only reads the channel, and the shards serve.

use core::time::Duration;
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use verbena_nic::{Arm, Cq};
use verbena_stream::Time;
use verbena_sync::thread::thread_local;

use crate::poll::group::{COALESCING_DELAY, Group};
use crate::poll::queue::{CompletionQueue, Queue};
use crate::sys::{self, Channel, WaitFd, channel_wait, poller};
use crate::trace::record::SleepPlace;
use crate::trace::tracer::asleep;

/// Groups that one thread sleeps with; with more, polling each of them costs too much.
const MAX_GROUPS: usize = 4;
/// Sleeps from this length on may be rounded up to whole milliseconds.
const COARSE: Duration = Duration::from_millis(10);

/// What a thread sleeps on that serves connections.
const SERVING: SleepPlace = SleepPlace::ChannelAndConnections;

/// A weak reference to a completion queue on whose channel threads sleep.
#[derive(Debug, Clone)]
pub struct WeakCompletionQueue(Weak<Queue>);

impl CompletionQueue {
    /// This queue, for [`WeakCompletionQueue::wait`].
    pub fn downgrade(&self) -> WeakCompletionQueue {
        WeakCompletionQueue(Arc::downgrade(&self.0))
    }

    /// Takes an event of the channel that this queue signals, as [`Channel::take`] does, and serves its connections meanwhile.
    pub fn wait(&self, channel: &Channel) -> sys::Result<bool> {
        sleep_poll(channel, || [self.downgrade()])
    }

    /// Sleeps until there is a completion, one of `others` is ready, a signal arrives or the time is over, and serves the queue's
    /// connections meanwhile. The queue need not be armed, and may be armed afterwards; `channel` is the one that it signals. Only one
    /// thread at a time: another one that armed the queue may miss its event.
    pub fn sleep(
        &self,
        channel: &Channel,
        others: &mut [WaitFd<'_>],
        timeout: Duration,
    ) -> sys::Result<()> {
        self.arm(Arm::Next);
        if !self.0.cq.is_empty() {
            return Ok(());
        }
        if others.is_empty() && timeout >= COARSE && borrow_groups(|| [self.0.clone()]) {
            let one = with_groups(|groups| single_poller_fd(groups, channel));
            let slept = one.map(|fd| sleep_for(&self.0.cq, channel, fd, poller::millis(timeout)));
            return_groups();
            if let Some(slept) = slept {
                return slept;
            }
        }
        let cq = || [self.downgrade()];
        WeakCompletionQueue::wait_with_fds(channel, cq, others, Some(timeout)).map(drop)
    }
}

impl WeakCompletionQueue {
    /// Takes an event of the channel that these queues signal, as [`Channel::take`] does, and serves their connections meanwhile.
    /// `all` is called before the sleep; locks that it takes are not held during the sleep.
    pub fn wait<I: IntoIterator<Item = WeakCompletionQueue>>(
        channel: &Channel,
        all: impl FnOnce() -> I,
    ) -> sys::Result<bool> {
        sleep_poll(channel, all)
    }

    /// Sleeps until the channel that these queues signal has an event, one of `others` is ready, or the time is over, and serves the
    /// queues' connections meanwhile. True if there was an event, which is taken; the ready ones of `others` are marked in any case.
    ///
    /// For programs with descriptors of their own. A signal ends it, and `O_NONBLOCK` of the channel is ignored.
    pub fn wait_with_fds<I: IntoIterator<Item = WeakCompletionQueue>>(
        channel: &Channel,
        all: impl FnOnce() -> I,
        others: &mut [WaitFd<'_>],
        timeout: Option<Duration>,
    ) -> sys::Result<bool> {
        let begun = borrow_groups(|| upgrade_all(all()));
        let rung = sleep_with_fds(channel, begun, others, timeout);
        if begun {
            return_groups();
        }
        rung
    }
}

thread_local! {
    /// Not on the stack: a thread that is cancelled while it sleeps returns its groups when its thread-local storage is destroyed.
    static SLEEP_POLL: RefCell<Option<SleepPoll>> = const { RefCell::new(None) };
}

/// Groups that this thread sleeps with.
struct SleepPoll(ArrayVec<Arc<Group>, MAX_GROUPS>);

impl SleepPoll {
    /// None if a group must not be slept with, or there are too many.
    fn begin(queues: impl IntoIterator<Item = Arc<Queue>>) -> Option<SleepPoll> {
        let mut all: ArrayVec<Arc<Group>, MAX_GROUPS> = ArrayVec::new();
        for queue in queues {
            if !queue.is_owner_process() {
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
            group.begin_sleep();
        }
        Some(SleepPoll(all))
    }
}

impl Drop for SleepPoll {
    fn drop(&mut self) {
        let now = sys::now();
        for group in &self.0 {
            group.end_sleep(now);
        }
    }
}

fn sleep_poll<I: IntoIterator<Item = WeakCompletionQueue>>(
    channel: &Channel,
    queues: impl FnOnce() -> I,
) -> sys::Result<bool> {
    if !channel.is_blocking() || !borrow_groups(|| upgrade_all(queues())) {
        return asleep(SleepPlace::Channel, || channel.take());
    }
    let rung = match with_groups(|groups| single_poller_fd(groups, channel)) {
        Some(fd) => sleep_with_one_group(channel, fd),
        None => sleep_with_groups(channel),
    };
    return_groups();
    rung
}

/// The queues that still exist.
fn upgrade_all(
    queues: impl IntoIterator<Item = WeakCompletionQueue>,
) -> impl Iterator<Item = Arc<Queue>> {
    queues.into_iter().filter_map(|one| one.0.upgrade())
}

/// Borrows the groups of these queues; false if this thread serves groups already, is ending, or may not borrow them: then it only sleeps.
fn borrow_groups<I: IntoIterator<Item = Arc<Queue>>>(queues: impl FnOnce() -> I) -> bool {
    let begun = SLEEP_POLL.try_with(|place| {
        let mut place = place
            .try_borrow_mut()
            .ok()
            .filter(|place| place.is_none())?;
        *place = Some(SleepPoll::begin(queues())?);
        Some(())
    });
    begun.is_ok_and(|begun| begun.is_some())
}

fn return_groups() {
    let over = SLEEP_POLL.with(|place| place.borrow_mut().take());
    // Dropped outside of the borrow, because it sets timers.
    drop(over);
}

fn with_groups<R>(work: impl FnOnce(&[Arc<Group>]) -> R) -> R {
    SLEEP_POLL.with(|place| match &*place.borrow() {
        Some(poll) => work(&poll.0),
        None => work(&[]),
    })
}

/// The descriptor of the group, if there is exactly one and its poller also watches the channel. A plain number, which holds
/// no reference: the thread may be cancelled while it sleeps.
fn single_poller_fd(groups: &[Arc<Group>], channel: &Channel) -> Option<RawFd> {
    match groups {
        [one] if one.watch_channel(channel) => Some(one.as_fd().as_raw_fd()),
        _ => None,
    }
}

fn sleep_with_one_group(channel: &Channel, fd: RawFd) -> sys::Result<bool> {
    let mut ready = ArrayVec::new();
    loop {
        asleep(SERVING, || poller::sleep(fd, &mut ready))?;
        let mut rung = false;
        let serve = || with_groups(|groups| rung = groups.iter().any(|g| g.serve_reported(&ready)));
        // The event may have been taken by another thread already.
        if channel.catch_rings(serve) || rung && channel.try_take() {
            return Ok(true);
        }
        with_groups(send_deferred_acks);
    }
}

/// Sleeps until there is a completion, with one group. Completions of this thread's own turns are found in the queue: an
/// event and its signal would take longer than the turn itself.
fn sleep_for(cq: &Cq, channel: &Channel, fd: RawFd, millis: i32) -> sys::Result<()> {
    let mut ready = ArrayVec::new();
    let whole = Duration::from_millis(millis.unsigned_abs().into());
    let mut quiet = CoalescingWindow::begin(whole);
    let mut left = quiet
        .as_ref()
        .map_or(millis, |_| poller::millis(COALESCING_DELAY));
    let mut end = None;
    loop {
        let woken = asleep(SERVING, || poller::sleep_for(fd, &mut ready, left))?;
        if !woken && !quiet.as_ref().is_some_and(CoalescingWindow::is_over) {
            // A signal, or the timeout.
            return Ok(());
        }
        cq.disarm();
        if !woken {
            with_groups(poll_after_coalescing);
        } else if with_groups(|groups| groups.iter().any(|group| group.serve_reported(&ready))) {
            // An event of another thread, or an old one.
            channel.try_take();
            return Ok(());
        }
        if !cq.is_empty() {
            return Ok(());
        }
        with_groups(send_deferred_acks);
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

/// Wake-up coalescing is on for this thread's groups, so it must check them itself after [`COALESCING_DELAY`]. An earlier wake-up ends it.
struct CoalescingWindow {
    until: Time,
}

impl CoalescingWindow {
    /// None if no group coalesces; the sleep must be longer than [`COALESCING_DELAY`].
    fn begin(sleep: Duration) -> Option<CoalescingWindow> {
        let begin = |groups: &[Arc<Group>]| {
            let any = groups.iter().map(|group| group.begin_coalescing());
            any.fold(false, |any, one| any | one)
        };
        (sleep > COALESCING_DELAY && with_groups(begin)).then(|| CoalescingWindow {
            until: sys::now() + COALESCING_DELAY,
        })
    }

    /// The interval is over; otherwise a signal ended the sleep.
    fn is_over(&self) -> bool {
        sys::now() >= self.until
    }

    /// The thread continues to sleep without a check of its own: coalescing ends.
    fn end(self) {
        with_groups(|groups| groups.iter().for_each(|group| group.end_coalescing()));
    }
}

fn poll_after_coalescing(groups: &[Arc<Group>]) {
    groups
        .iter()
        .for_each(|group| group.poll_after_coalescing());
}

/// Sends deferred acknowledgements before sleeping on: no completion was found, so the program does not answer soon.
fn send_deferred_acks(groups: &[Arc<Group>]) {
    groups
        .iter()
        .for_each(|group| group.finish_polling_before_sleep());
}

fn descriptors() -> ArrayVec<RawFd, MAX_GROUPS> {
    let fd = |group: &Arc<Group>| group.as_fd().as_raw_fd();
    with_groups(|groups| groups.iter().map(fd).collect())
}

fn serve() {
    with_groups(|groups| groups.iter().for_each(|group| group.serve_ready_now()));
}

fn sleep_with_groups(channel: &Channel) -> sys::Result<bool> {
    let fds = descriptors();
    loop {
        let rung = asleep(SERVING, || channel.wait_with_fds(&fds))?;
        if channel.catch_rings(serve) || rung && channel.try_take() {
            return Ok(true);
        }
        with_groups(send_deferred_acks);
    }
}

fn sleep_with_fds(
    channel: &Channel,
    serves: bool,
    others: &mut [WaitFd<'_>],
    timeout: Option<Duration>,
) -> sys::Result<bool> {
    let start = sys::now();
    let fds = if serves {
        descriptors()
    } else {
        ArrayVec::new()
    };
    let mut quiet = serves
        .then(|| CoalescingWindow::begin(timeout.unwrap_or(Duration::MAX)))
        .flatten();
    loop {
        let left = timeout.map(|limit| limit.saturating_sub(sys::now().since(start)));
        let moment = quiet.as_ref().map(|_| COALESCING_DELAY);
        let place = if serves { SERVING } else { SleepPlace::Channel };
        let limit = moment.or(left);
        let woken = asleep(place, || channel_wait::wait(channel, &fds, others, limit))?;
        let caught = match woken {
            Some(woken) => woken.adapter_ready && channel.catch_rings(serve),
            None if quiet.as_ref().is_some_and(CoalescingWindow::is_over) => {
                channel.catch_rings(|| with_groups(poll_after_coalescing))
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
            with_groups(send_deferred_acks);
        }
        if let Some(quiet) = quiet.take() {
            quiet.end();
        }
    }
}
