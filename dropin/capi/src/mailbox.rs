//! A queue of events, and a descriptor that is readable while it is not empty.
//! Each event is one read; reading blocks or not as the descriptor's flags say. Events of an object that is being destroyed are removed.
//! No lock is held while a call waits, since the waiting thread may be cancelled.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use parking_lot::Mutex;
use verbena::unstable::Channel;

use crate::errno::Errno;

/// A queue of events with a descriptor.
pub(crate) struct Mailbox<E> {
    channel: Channel,
    waiting: Mutex<VecDeque<E>>,
    /// The device has failed: taking from an empty mailbox fails.
    ended: AtomicBool,
}

impl<E> Mailbox<E> {
    pub(crate) fn new() -> Result<Mailbox<E>, Errno> {
        let channel = Channel::new().map_err(|error| Errno(error.code()))?;
        Ok(Mailbox {
            channel,
            waiting: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// Ends every wait from now on: events in the queue are still returned, then `EIO`, as by the kernel's channels of a removed device.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.channel.ring_forever();
    }

    /// The descriptor that programs wait on.
    pub(crate) fn fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    /// The queue is not empty.
    pub(crate) fn has_events(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Adds an event, if `wanted` still holds under the lock that [`remove`](Mailbox::remove) takes.
    pub(crate) fn put_if(&self, event: E, wanted: impl FnOnce() -> bool) {
        let mut waiting = self.waiting.lock();
        if wanted() {
            waiting.push_back(event);
            self.channel.ring();
        }
    }

    /// The same, with at most `most` events unread: a further one is dropped and `overflow` added in its place, once until
    /// there is room again. True if `overflow` was added by this call.
    pub(crate) fn put_within(
        &self,
        most: usize,
        event: E,
        wanted: impl FnOnce() -> bool,
        overflow: impl FnOnce() -> E,
    ) -> bool {
        let mut waiting = self.waiting.lock();
        let unread = waiting.len();
        if unread > most || !wanted() {
            return false;
        }
        waiting.push_back(if unread < most { event } else { overflow() });
        self.channel.ring();
        unread == most
    }

    /// Removes the oldest event. `seen` runs under the lock, so that [`remove`](Mailbox::remove) either comes first or sees its effect.
    pub(crate) fn take(&self, seen: impl Fn(&E)) -> Result<E, Errno> {
        self.take_by(|channel| channel.take().map_err(|e| Errno(e.code())), seen)
    }

    /// The same; `wait` takes a ring of the channel.
    pub(crate) fn take_by(
        &self,
        wait: impl Fn(&Channel) -> Result<bool, Errno>,
        seen: impl Fn(&E),
    ) -> Result<E, Errno> {
        loop {
            let rung = wait(&self.channel)?;
            if !rung {
                return Err(Errno::AGAIN);
            }
            // The event of this ring may have been removed meanwhile: then another event is returned, or the loop waits again.
            if let Some(event) = self.pop(&seen) {
                return Ok(event);
            }
            if self.ended.load(Ordering::Acquire) {
                return Err(Errno(libc::EIO));
            }
        }
    }

    fn pop(&self, seen: impl Fn(&E)) -> Option<E> {
        let mut waiting = self.waiting.lock();
        let event = waiting.pop_front()?;
        seen(&event);
        Some(event)
    }

    /// Removes the events of an object that is being destroyed; `gone` runs under the lock, and must prevent that more are added.
    pub(crate) fn remove(&self, belongs: impl Fn(&E) -> bool, gone: impl FnOnce()) {
        // Dropped after the lock is released.
        drop(self.drain_matching_and(belongs, gone));
    }

    /// Removes the events of an object, in order.
    pub(crate) fn drain_matching(&self, belongs: impl Fn(&E) -> bool) -> VecDeque<E> {
        self.drain_matching_and(belongs, || ())
    }

    /// The same; `gone` runs under the lock.
    pub(crate) fn drain_matching_and(
        &self,
        belongs: impl Fn(&E) -> bool,
        gone: impl FnOnce(),
    ) -> VecDeque<E> {
        let mut waiting = self.waiting.lock();
        gone();
        let all = core::mem::take(&mut *waiting);
        let (out, rest): (VecDeque<E>, VecDeque<E>) = all.into_iter().partition(belongs);
        *waiting = rest;
        for _ in &out {
            // A missing ring was taken by a thread that is about to look into the queue.
            self.channel.try_take();
        }
        out
    }
}

/// Events of an object that the program was given and has not acknowledged.
#[derive(Default)]
pub(crate) struct Acks {
    unacknowledged: Mutex<u64>,
    all_acknowledged: parking_lot::Condvar,
}

impl Acks {
    /// The program was given one.
    pub(crate) fn delivered(&self) {
        *self.unacknowledged.lock() += 1;
    }

    /// The program acknowledges `count`; more than it was given count as all.
    pub(crate) fn acknowledged(&self, count: u64) {
        let mut owed = self.unacknowledged.lock();
        *owed = owed.saturating_sub(count);
        if *owed == 0 {
            self.all_acknowledged.notify_all();
        }
    }

    /// Waits until all are acknowledged, as the originals do before they destroy an object.
    pub(crate) fn wait(&self) {
        let mut owed = self.unacknowledged.lock();
        while *owed > 0 {
            self.all_acknowledged.wait(&mut owed);
        }
    }
}

#[cfg(test)]
mod tests;
