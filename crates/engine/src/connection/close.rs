//! The end of a connection: last words, shutdown, and hearing the peer out.
//! It promises that a Terminate reaches a peer that lives: the socket is closed when the peer has closed, too, or after a
//! while, never with unread input before that. It refuses to wait; the shard's timer ends what takes too long.

use core::time::Duration;
use std::sync::atomic::Ordering;

use verbena_nic::{Moved, Outbox};
use verbena_stream::Time;

use super::{Bound, Connection, Phase};
use crate::sys::{self, read_into};

/// Reads of one turn, before others have theirs: a peer may send as fast as it likes.
const READS: usize = 16;

/// Time between our Terminate and our FIN if the connection is new: on Linux's siw a close that comes right behind the
/// Terminate overtakes the establishment of its own side, which has crashed its kernel.
const TERMINATE_GRACE: Duration = Duration::from_millis(100);

/// Where a goodbye stands.
enum Farewell {
    /// Nothing is left to wait for.
    Over,
    /// The peer has not closed, or there is no room for our last words.
    Waits {
        /// Last words are left.
        unsent: bool,
    },
}

impl Connection {
    /// Sends `last` and closes our direction. Whatever the peer still says is thrown away.
    pub(crate) fn close(&self, last: Vec<u8>, out: &mut Outbox) {
        self.close_after(Duration::ZERO, last, out);
    }

    /// The stream ended with our Terminate. If its startup was a moment ago, a peer without the extensions gets
    /// [`TERMINATE_GRACE`] before our direction is closed.
    pub(super) fn close_terminated(&self, last: Vec<u8>, out: &mut Outbox) {
        let young = self.is_standard.load(Ordering::Acquire) && sys::now() < self.startup;
        let wait = if young {
            TERMINATE_GRACE
        } else {
            Duration::ZERO
        };
        self.close_after(wait, last, out);
    }

    fn close_after(&self, wait: Duration, last: Vec<u8>, out: &mut Outbox) {
        let now = sys::now();
        let until = now + self.core.config.linger;
        let shut = (now + wait).min(until);
        let before = {
            let mut phase = self.phase.lock();
            let permit = match &mut *phase {
                Phase::Lingering { .. } | Phase::Closed => {
                    drop(phase);
                    return self.let_go();
                }
                Phase::Starting(starting) => starting.take_permit(),
                Phase::Running { .. } => None,
            };
            if let Some(permit) = &permit {
                permit.is_answered();
            }
            self.line.shut();
            let lingering = Phase::Lingering {
                unsent: last,
                shut,
                until,
                permit,
            };
            core::mem::replace(&mut *phase, lingering)
        };
        // Without the lock: it may take a program's handler along.
        drop(before);
        self.shard.at(until, self.token);
        if !wait.is_zero() {
            self.shard.at(shut, self.token);
        }
        self.let_go();
        if let Some(unsent) = self.linger(out) {
            // Somebody must be told when the peer closes, or when there is room for the last words.
            self.watch_by_shard(unsent);
        }
    }

    /// A queue pair that has let go of its stream may be connected again while this connection says goodbye.
    fn let_go(&self) {
        if let Some(bound) = self.bound.get().filter(|b| !b.qp.has_stream()) {
            self.part(bound);
        }
    }

    /// The queue pair has this connection no more.
    fn part(&self, bound: &Bound) {
        self.core.parted(bound.qp.number(), self);
        let was_ours = bound.slot.clear(self);
        if let Some(introduction) = bound.introduction.as_ref().filter(|_| was_ours) {
            introduction.parted();
        }
    }

    /// Breaks the connection off: the peer sees a reset.
    pub(crate) fn abort(&self, out: &mut Outbox) {
        self.line.socket().set_abortive();
        self.finish(out);
    }

    pub(super) fn linger_ready(&self) {
        let mut out = Outbox::new();
        if let Some(unsent) = self.linger(&mut out) {
            self.watch_by_shard(unsent);
        }
        self.core.deliver(&mut out);
    }

    /// Says what is left to say, and throws away what comes. None if there is no more to it, else whether last words
    /// are left.
    pub(super) fn linger(&self, out: &mut Outbox) -> Option<bool> {
        let farewell = match &mut *self.phase.lock() {
            Phase::Lingering {
                unsent,
                shut,
                until,
                ..
            } => self.farewell(unsent, *shut, *until),
            _ => return None,
        };
        match farewell {
            Farewell::Waits { unsent } => Some(unsent),
            Farewell::Over => {
                self.finish(out);
                None
            }
        }
    }

    fn farewell(&self, unsent: &mut Vec<u8>, shut: Time, until: Time) -> Farewell {
        while !unsent.is_empty() {
            match self.line.put(unsent) {
                Moved::Bytes(n) => drop(unsent.drain(..n)),
                Moved::Nothing => break,
                Moved::End | Moved::Broken | Moved::Fault => return Farewell::Over,
            }
        }
        let mut shuts = unsent.is_empty() && sys::now() >= shut;
        if shuts {
            match self.line.close_tls() {
                Ok(all_sent) => shuts = all_sent,
                Err(()) => return Farewell::Over,
            }
        }
        if shuts && self.line.socket().shutdown_write().is_err() {
            return Farewell::Over;
        }
        let mut waste = [0; 16 << 10];
        for _ in 0..READS {
            match read_into(self.line.reads(), &mut waste) {
                Moved::Bytes(_) => {}
                Moved::Nothing => break,
                Moved::End | Moved::Broken | Moved::Fault => return Farewell::Over,
            }
        }
        if sys::now() >= until {
            return Farewell::Over;
        }
        Farewell::Waits {
            unsent: self.line.wants_room(!unsent.is_empty()),
        }
    }

    /// Nothing of the connection is left.
    pub(super) fn finish(&self, out: &mut Outbox) {
        let before = {
            let mut phase = self.phase.lock();
            self.line.shut();
            core::mem::replace(&mut *phase, Phase::Closed)
        };
        match before {
            Phase::Closed => return,
            Phase::Lingering { until, .. } => self.shard.not_at(until, self.token),
            Phase::Starting(_) => self.shard.not_at(self.startup, self.token),
            Phase::Running { .. } => {}
        }
        self.watch_no_more();
        self.shard.forget(self.token);
        if let Some(bound) = self.bound.get() {
            // A queue pair that has another connection by now has forgotten this one.
            if bound.slot.is(self) {
                bound.qp.handle_closed(out);
            }
            self.part(bound);
        }
    }
}
