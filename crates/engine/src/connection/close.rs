//! The end of a connection: last words, shutdown, and hearing the peer out.
//! It promises that a Terminate reaches a peer that lives: the socket is closed when the peer has closed, too, or after a
//! while, never with unread input before that. It refuses to wait; the shard's timer ends what takes too long.

use verbena_nic::{Moved, Outbox};
use verbena_stream::Time;

use super::{Connection, Phase, read_into, write_from};
use crate::sys;

impl Connection {
    /// Sends `last` and closes our direction. Whatever the peer still says is thrown away.
    pub(crate) fn close(&self, last: Vec<u8>, out: &mut Outbox) {
        {
            let mut phase = self.phase.lock();
            if matches!(*phase, Phase::Lingering { .. } | Phase::Closed) {
                return;
            }
            let until = sys::now() + self.core.config.linger;
            *phase = Phase::Lingering {
                unsent: last,
                until,
            };
            self.shard.at(until, self.token);
        }
        self.linger(out);
        if let Some(bound) = self.bound.get()
            && !self.is_closed()
        {
            // Somebody must be told when the peer closes, or when there is room for the last words.
            self.deaf
                .store(false, core::sync::atomic::Ordering::Release);
            bound.group.rearm(self, self.interest());
        }
    }

    /// Breaks the connection off: the peer sees a reset.
    pub(crate) fn abort(&self, out: &mut Outbox) {
        self.socket.set_abortive();
        self.finish(out);
    }

    fn is_closed(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Closed)
    }

    /// Says what is left to say, and throws away what comes.
    pub(super) fn linger(&self, out: &mut Outbox) {
        let over = match &mut *self.phase.lock() {
            Phase::Lingering { unsent, until } => self.farewell(unsent, *until),
            _ => return,
        };
        if over {
            self.finish(out);
        }
    }

    /// True when nothing is left to wait for.
    fn farewell(&self, unsent: &mut Vec<u8>, until: Time) -> bool {
        while !unsent.is_empty() {
            match write_from(&self.socket, unsent) {
                Moved::Bytes(n) => drop(unsent.drain(..n)),
                Moved::Nothing => break,
                Moved::End | Moved::Broken | Moved::Fault => return true,
            }
        }
        if unsent.is_empty() && self.socket.shutdown_write().is_err() {
            return true;
        }
        let mut waste = [0; 4096];
        loop {
            match read_into(&self.socket, &mut waste) {
                Moved::Bytes(_) if sys::now() < until => {}
                Moved::Nothing => return sys::now() >= until,
                _ => return true,
            }
        }
    }

    /// Nothing of the connection is left.
    fn finish(&self, out: &mut Outbox) {
        let before = core::mem::replace(&mut *self.phase.lock(), Phase::Closed);
        if matches!(before, Phase::Closed) {
            return;
        }
        self.shard.unwatch(&self.socket);
        self.shard.forget(self.token);
        if let Some(bound) = self.bound.get() {
            bound.group.leave(self);
            self.core.parted(bound.qp.number(), self);
            bound.qp.handle_closed(out);
            bound.slot.set(None);
        }
    }
}
