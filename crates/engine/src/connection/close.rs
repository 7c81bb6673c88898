//! Closes a connection: sends what is left, shuts down the sending direction, and discards input until the peer closes.
//! A socket closed with unread input would reset the connection and lose a Terminate, so it stays open until the peer has closed or `linger` has
//! passed. Nothing here blocks; a timer of the shard ends the wait.

use core::time::Duration;

use verbena_nic::{IoOutcome, Outbox};
use verbena_stream::Time;
use verbena_sync::atomic::Ordering;

use super::{Bound, Connection, Phase};
use crate::notify::failure_log;
use crate::sys;

/// Reads per turn; the peer may send continuously.
const READS: usize = 16;

/// Time between a Terminate and the FIN if the connection is new: on Linux's siw a close right behind the Terminate overtakes the
/// establishment on its own side, which has crashed its kernel.
const TERMINATE_GRACE: Duration = Duration::from_millis(100);

/// State of a closing connection.
enum CloseProgress {
    /// Nothing is left to wait for.
    Done,
    /// The peer has not closed, or bytes are still to be sent.
    Waiting {
        /// Bytes are still to be sent.
        unsent: bool,
    },
}

impl Connection {
    /// Sends `last` and shuts down the sending direction. Further input is discarded.
    pub(crate) fn close(&self, last: Vec<u8>, out: &mut Outbox) {
        self.close_after(Duration::ZERO, last, out);
    }

    /// The stream ended with a Terminate from here. If the connection is new and the peer does not use the extensions, the FIN follows
    /// after [`TERMINATE_GRACE`].
    pub(super) fn close_terminated(&self, last: Vec<u8>, out: &mut Outbox) {
        let young = self.is_standard.load(Ordering::Acquire) && sys::now() < self.startup_deadline;
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
                    return self.release_qp();
                }
                Phase::Starting(starting) => starting.take_permit(),
                Phase::Running { .. } => None,
            };
            if let Some(permit) = &permit {
                permit.set_answered();
            }
            self.transport.shut();
            let lingering = Phase::Lingering {
                unsent: last,
                shut,
                until,
                permit,
            };
            core::mem::replace(&mut *phase, lingering)
        };
        // Dropped without the lock: it may own a callback of the program.
        drop(before);
        self.shard.set_timer(until, self.token);
        if !wait.is_zero() {
            self.shard.set_timer(shut, self.token);
        }
        self.release_qp();
        if let Some(unsent) = self.linger(out) {
            // The shard must be told when the peer closes, or when there is room for the rest.
            self.watch_by_shard(unsent);
        }
    }

    /// A queue pair without a stream may be connected again while this connection lingers.
    fn release_qp(&self) {
        if let Some(bound) = self.bound.get().filter(|b| !b.qp.has_stream()) {
            self.unlink_qp(bound);
        }
    }

    /// Unlinks the connection from its queue pair.
    fn unlink_qp(&self, bound: &Bound) {
        self.core.routes.remove_connection(bound.qp.number(), self);
        failure_log::disconnected(&self.core, bound.qp.number());
        let was_ours = bound.slot.clear(self);
        if let Some(introduction) = bound.oob_hello.as_ref().filter(|_| was_ours) {
            introduction.disconnected();
        }
    }

    /// Aborts the connection: the peer sees a reset.
    pub(crate) fn abort(&self, out: &mut Outbox) {
        self.transport.socket().set_abortive();
        self.finish(out);
    }

    pub(super) fn linger_ready(&self) {
        let mut out = Outbox::new();
        if let Some(unsent) = self.linger(&mut out) {
            self.watch_by_shard(unsent);
        }
        self.core.deliver(&mut out);
    }

    /// Sends what is left and discards input. None if the connection is closed or not lingering, else whether bytes are still to be
    /// sent.
    pub(super) fn linger(&self, out: &mut Outbox) -> Option<bool> {
        let farewell = match &mut *self.phase.lock() {
            Phase::Lingering {
                unsent,
                shut,
                until,
                ..
            } => self.advance_close(unsent, *shut, *until),
            _ => return None,
        };
        match farewell {
            CloseProgress::Waiting { unsent } => Some(unsent),
            CloseProgress::Done => {
                self.finish(out);
                None
            }
        }
    }

    fn advance_close(&self, unsent: &mut Vec<u8>, shut: Time, until: Time) -> CloseProgress {
        while !unsent.is_empty() {
            match self.transport.write_local(unsent) {
                IoOutcome::Bytes(n) => drop(unsent.drain(..n)),
                IoOutcome::WouldBlock => break,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
                    return CloseProgress::Done;
                }
            }
        }
        let mut shuts = unsent.is_empty() && sys::now() >= shut;
        if shuts {
            match self.transport.close_tls() {
                Ok(all_sent) => shuts = all_sent,
                Err(()) => return CloseProgress::Done,
            }
        }
        if shuts && self.transport.socket().shutdown_write().is_err() {
            return CloseProgress::Done;
        }
        let mut waste = [0; 16 << 10];
        for _ in 0..READS {
            match self.transport.discard_input(&mut waste) {
                IoOutcome::Bytes(_) => {}
                IoOutcome::WouldBlock => break,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
                    return CloseProgress::Done;
                }
            }
        }
        if sys::now() >= until {
            return CloseProgress::Done;
        }
        CloseProgress::Waiting {
            unsent: self.transport.wants_room(!unsent.is_empty()),
        }
    }

    /// Closes the connection for good.
    pub(super) fn finish(&self, out: &mut Outbox) {
        let before = {
            let mut phase = self.phase.lock();
            self.transport.shut();
            core::mem::replace(&mut *phase, Phase::Closed)
        };
        match before {
            Phase::Closed => return,
            Phase::Lingering { until, .. } => self.shard.cancel_timer(until, self.token),
            Phase::Starting(_) => self.shard.cancel_timer(self.startup_deadline, self.token),
            Phase::Running { .. } => {}
        }
        self.unwatch();
        self.shard.forget(self.token);
        if let Some(bound) = self.bound.get() {
            // A queue pair with a new connection must not see the end of this one.
            let binding = bound.slot.lock_binding();
            if bound.slot.holds(self) {
                bound.qp.handle_closed(out);
            }
            drop(binding);
            self.unlink_qp(bound);
        }
    }
}
