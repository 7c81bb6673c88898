//! Turns at a running connection: by its shard, by a thread that polls, by one that posts.
//! Each promises to end with sending what may be sent, so that whoever found somebody at work can rely on it,
//! and leaves what must wait until no lock is held in the outbox. It refuses to wait for anything.

use core::time::Duration;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbena_nic::qp::Future;
use verbena_nic::{Acks, Hand, Outbox, Qp, Receiving, Sending};
use verbena_stream::Time;

use super::{Bound, Connection, Phase};
use crate::sys::{self, Interest};

/// Reads of one turn, before others have theirs.
const READS: usize = 16;
/// Where bytes land that do not go straight to their place: room for some of the longest frames.
const SCRATCH: usize = 256 << 10;
/// Empty polls between two looks for room.
const ROOM_POLLS: u32 = 8;
/// How often a peer that owes an answer is looked at.
const WATCH: Duration = Duration::from_millis(500);

thread_local! {
    static STAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the thread's scratch buffer.
fn with_scratch<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    STAGE.with(|stage| match stage.try_borrow_mut() {
        Ok(mut stage) => {
            stage.resize(SCRATCH, 0);
            work(&mut stage)
        }
        // A handler that polls while a turn of its thread is under way gets by with less.
        Err(_) => work(&mut [0; 2048]),
    })
}

impl Connection {
    /// A full turn: reads what is there, then sends.
    pub(crate) fn turn(&self, out: &mut Outbox) {
        let Some(bound) = self.bound.get() else {
            return;
        };
        if !self.is_running() {
            self.linger(out);
            return;
        }
        self.read(bound, READS, out);
        self.send_now(out);
    }

    /// A turn of a thread that polls: what it received may be answered by its program at once, and then the
    /// acknowledgement goes along.
    pub(crate) fn poll_turn(&self, out: &mut Outbox) {
        let Some(bound) = self.bound.get() else {
            return;
        };
        if !self.is_running() {
            self.linger(out);
            return;
        }
        let recv_cq = &bound.qp.init().recv_cq;
        if self.read(bound, 1, out) && !recv_cq.is_empty() {
            self.deferred.store(true, Ordering::Release);
        } else if !self.wants_room.load(Ordering::Acquire) || self.tries_again() {
            self.deferred.store(false, Ordering::Release);
            self.send_now(out);
        }
    }

    /// A polling thread looks for room in a full socket only now and then: each look is a system call.
    fn tries_again(&self) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed) % ROOM_POLLS == 0
    }

    /// Sends what a polling thread put off.
    pub(crate) fn send_deferred(&self, out: &mut Outbox) {
        if self.deferred.swap(false, Ordering::AcqRel) {
            self.send_now(out);
        }
    }

    /// Goes on reading if that was stopped for a receive that is there now.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.deaf.load(Ordering::Acquire) {
            self.turn(out);
        }
    }

    /// Sends what may be sent, unless somebody is at work who will. Acknowledgements alone wait for whoever received
    /// what they are about: a shard acknowledges at the end of its turn, a polling thread when it finds nothing more.
    pub(crate) fn send(&self, out: &mut Outbox) {
        self.transmit(Acks::Along, out);
    }

    fn send_now(&self, out: &mut Outbox) {
        self.transmit(Acks::Now, out);
    }

    fn transmit(&self, acks: Acks, out: &mut Outbox) {
        let Some(bound) = self.bound.get() else {
            return;
        };
        let (mut carrier, now) = (&self.socket, sys::now());
        let sent = bound.qp.try_transmit(&mut carrier, acks, now, out);
        match sent {
            None => return,
            Some(Sending::Idle | Sending::Ended) => self.want_room(bound, false),
            Some(Sending::Blocked) => self.want_room(bound, true),
        }
        self.look_ahead(bound, out);
    }

    /// Reads up to `times` times; true if anything came.
    fn read(&self, bound: &Bound, times: usize, out: &mut Outbox) -> bool {
        let now = sys::now();
        let mut any = self.read_early(&bound.qp, now, out);
        with_scratch(|scratch| {
            for _ in 0..times {
                let receiving = bound.qp.receive(&mut &self.socket, scratch, now, out);
                match receiving {
                    Receiving::Some(n) => any |= n > 0,
                    Receiving::Dry => {
                        self.hear(bound);
                        break;
                    }
                    Receiving::Held | Receiving::Ended => {
                        self.go_deaf(bound);
                        break;
                    }
                }
            }
        });
        any
    }

    /// Bytes that came along with the startup.
    fn read_early(&self, qp: &Qp, now: Time, out: &mut Outbox) -> bool {
        let Phase::Running { early } = &mut *self.phase.lock() else {
            return false;
        };
        if early.is_empty() {
            return false;
        }
        let mut hand = Hand::with(early);
        while !hand.came.is_empty() {
            match qp.receive(&mut hand, &mut [0; 2048], now, out) {
                Receiving::Some(_) => {}
                Receiving::Dry | Receiving::Held => break,
                Receiving::Ended => hand.came = &[],
            }
        }
        let read = early.len() - hand.came.len();
        early.drain(..read);
        if early.is_empty() {
            *early = Vec::new();
        }
        read > 0
    }

    /// Watches for input again.
    fn hear(&self, bound: &Bound) {
        if self.deaf.swap(false, Ordering::AcqRel) {
            bound.group.rearm(self, self.interest());
        }
    }

    /// Input that cannot be read must not wake anybody.
    fn go_deaf(&self, bound: &Bound) {
        if !self.deaf.swap(true, Ordering::AcqRel) {
            bound.group.set_aside(self);
        }
    }

    fn want_room(&self, bound: &Bound, wanted: bool) {
        if self.wants_room.swap(wanted, Ordering::AcqRel) == wanted {
            return;
        }
        let deaf = self.deaf.load(Ordering::Acquire);
        if wanted || !deaf {
            bound.group.rearm(self, self.interest());
        } else {
            bound.group.set_aside(self);
        }
    }

    pub(super) fn interest(&self) -> Interest {
        Interest {
            read: !self.deaf.load(Ordering::Acquire),
            write: self.wants_room.load(Ordering::Acquire),
            oneshot: false,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Running { .. })
    }

    /// What comes after a turn: a time to wake, a peer to watch, an end.
    pub(crate) fn look_ahead(&self, bound: &Bound, out: &mut Outbox) {
        let outlook = bound.qp.outlook();
        match outlook.future {
            Future::Open => {}
            Future::Close => return self.close(Vec::new(), out),
            Future::Reset => return self.abort(out),
        }
        if let Some(deadline) = outlook.deadline {
            self.wake_at(deadline);
        }
        if outlook.dying && !self.dying.swap(true, Ordering::AcqRel) {
            self.shard
                .at(sys::now() + self.core.config.linger, self.token);
            self.last_moment.store(
                (sys::now() + self.core.config.linger).nanos(),
                Ordering::Release,
            );
        }
        let watch = outlook.awaits_peer && bound.patience.is_some();
        if watch && !self.watched.swap(true, Ordering::AcqRel) {
            self.shard.at(sys::now() + WATCH, self.token);
        }
    }

    fn wake_at(&self, when: Time) {
        // Asking again for a time that was asked for is harmless but costs a lock.
        if self.due.swap(when.nanos(), Ordering::AcqRel) != when.nanos() {
            self.shard.at(when, self.token);
        }
    }

    pub(super) fn turn_expired(self: Arc<Self>, now: Time) {
        let Some(bound) = self.bound.get() else {
            return;
        };
        let mut out = Outbox::new();
        let last = self.last_moment.load(Ordering::Acquire);
        if self.is_running() && last != 0 && now.nanos() >= last {
            // It had its time, and the peer did not take the last words.
            self.abort(&mut out);
        } else if self.is_running() {
            self.due.store(0, Ordering::Release);
            if bound.qp.deadline().is_some_and(|when| when <= now) {
                bound.qp.handle_timeout(now, &mut out);
            }
            self.watch_peer(bound, now, &mut out);
            self.send_now(&mut out);
        } else {
            self.linger(&mut out);
        }
        self.core.deliver(&mut out);
    }

    /// docs/connections.md: a peer is dead when it owes acknowledgements and its TCP is silent, not when it merely does
    /// not read.
    fn watch_peer(&self, bound: &Bound, now: Time, out: &mut Outbox) {
        if !self.watched.load(Ordering::Acquire) {
            return;
        }
        let Some(patience) = bound.patience.filter(|_| bound.qp.awaits_peer()) else {
            self.watched.store(false, Ordering::Release);
            return;
        };
        if self
            .socket
            .silence()
            .is_some_and(|silent| silent > patience)
        {
            bound.qp.handle_peer_dead(out);
        }
        self.shard.at(now + WATCH, self.token);
    }
}
