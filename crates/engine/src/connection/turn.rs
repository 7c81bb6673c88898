//! Turns at a running connection: by its shard, by a thread that polls, by one that posts.
//! Each promises to end with sending what may be sent, so that whoever found somebody at work can rely on it,
//! and leaves what must wait until no lock is held in the outbox. It refuses to wait for anything.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbena_nic::qp::{Future, Outlook};
use verbena_nic::qp::{Received, Wants};
use verbena_nic::{Acks, Hand, Outbox, Qp, Receiving, Sending};
use verbena_stream::Time;

use super::line::Turn;
use super::{Bound, Connection, Phase};
use crate::sys;

/// Reads of one turn, before others have theirs.
const READS: usize = 16;
/// A polling thread reads again at once after so many bytes, which are part of a stream, until it has read so many: the connections
/// beside this one need not be asked in vain for each message, and whoever polled finds several.
const LONG: usize = 32 << 10;
const POLLED: usize = 256 << 10;
/// Bytes that are sent in one turn, before others have theirs; a polling thread must be back well before `lend_time`.
const WRITES: usize = 1 << 20;
/// Where bytes land that do not go straight to their place: room for some of the longest frames.
const SCRATCH: usize = 256 << 10;
/// Empty polls between two looks for room.
const ROOM_POLLS: u32 = 8;
/// Acknowledgements that leave at once after one was put off for too long.
const DISTRUST: u32 = 256;
/// Turns of a new connection whose acknowledgements leave at once. A process that is killed with unread messages in its socket
/// takes along what it put off, and short conversations must not depend on it (docs/connections.md).
pub(super) const PROBATION: u32 = 64;

thread_local! {
    /// None while it is lent.
    static STAGE: Cell<Option<Vec<u8>>> = const { Cell::new(Some(Vec::new())) };
}

/// Lends the thread's scratch buffer.
fn with_scratch<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    // A handler that polls while a turn of its thread is under way gets by with less, and so does a program that is
    // in the middle of `exit`, whose thread has none any more.
    let Some(mut stage) = STAGE.try_with(Cell::take).ok().flatten() else {
        return work(&mut [0; 2048]);
    };
    stage.resize(SCRATCH, 0);
    let done = work(&mut stage);
    // There until the thread ends, which it does not in between.
    let _ = STAGE.try_with(|place| place.set(Some(stage)));
    done
}

impl Connection {
    /// A full turn: reads what is there, then sends.
    pub(crate) fn full_turn(&self, out: &mut Outbox) {
        let Some(bound) = self.bound.get() else {
            return;
        };
        if !self.is_running() {
            // The shard is told of whatever else happens to it.
            self.linger(out);
            return;
        }
        let mut left = READS;
        let again = |_| {
            left = usize::saturating_sub(left, 1);
            left > 0
        };
        let (_, wants) = self.read(bound, again, sys::now(), out);
        if wants == Wants::Acks {
            bound.group.note_data();
        }
        self.send_now(out);
    }

    /// A turn of a thread that polls: what it received may be answered by its program at once, and then the
    /// acknowledgement goes along. True if it was put off.
    pub(super) fn polled_turn(&self, now: Time, out: &mut Outbox) -> bool {
        let Some(bound) = self.bound.get() else {
            return false;
        };
        if !self.is_running() {
            self.linger(out);
            return false;
        }
        let mut bytes = 0;
        let again = |n| {
            bytes += n;
            n >= LONG && bytes < POLLED
        };
        let (any, wants) = self.read(bound, again, now, out);
        if wants == Wants::Acks {
            bound.group.note_data();
        }
        // Whoever polls finds what came, or polls again and finds more or nothing: only then nothing goes along.
        let put_off = any && wants != Wants::Nothing && self.trusts();
        if put_off {
            self.deferred.store(true, Ordering::SeqCst);
            // Not for ever: a peer that sends without a pause is told now and then (`ack_requests`, `ack_bytes`).
            if wants == Wants::Send && self.may_find_room() {
                self.send(out);
            }
        } else if (wants != Wants::Nothing || self.line.has_unsent()) && self.may_find_room() {
            // What was put off before leaves now as well; that it is still noted is harmless.
            self.send_now(out);
        }
        put_off
    }

    /// A polling thread looks for room in a full socket only now and then: each look is a system call.
    fn may_find_room(&self) -> bool {
        let look = || self.polls.fetch_add(1, Ordering::Relaxed);
        !self.watch.wants_room() || look().is_multiple_of(ROOM_POLLS)
    }

    /// Whether putting an acknowledgement off pays: it does for a program that answers or polls again at once. For one
    /// that stayed away with it the next ones leave immediately.
    fn trusts(&self) -> bool {
        if self.core.config.ack_delay.is_zero() {
            return false;
        }
        let less = |n: u32| n.checked_sub(1);
        self.distrust
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_err()
    }

    /// Sends what a polling thread put off; `late` if it should have done so itself.
    pub(super) fn send_put_off(&self, late: bool, out: &mut Outbox) {
        if !self.deferred.swap(false, Ordering::SeqCst) {
            return;
        }
        let sent = || self.bound.get().map(|b| b.qp.counters().bytes_out);
        let before = sent();
        self.send_now(out);
        // What had left along with a post was not late.
        if late && sent() != before {
            self.distrust.store(DISTRUST, Ordering::Relaxed);
        }
    }

    /// Goes on reading if that was stopped for a receive that is there now.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.watch.is_deaf() {
            self.full_turn(out);
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
        loop {
            let (mut carrier, now) = (Turn::new(&self.line, WRITES), sys::now());
            let sent = bound.qp.try_transmit(&mut carrier, acks, now, out);
            let Some((sending, outlook)) = sent else {
                return;
            };
            if let Some(next) = self.successor(bound) {
                return next.transmit(acks, out);
            }
            match sending {
                // What TLS has taken leaves as soon as there is room, too.
                Sending::Idle | Sending::Ended if self.line.is_backed_up() => {
                    self.want_room(bound, true);
                }
                // Room that is watched for in vain wakes us once, and is watched for no longer.
                Sending::Blocked => {
                    if carrier.is_over() {
                        // There may be room: the next poll tries.
                        self.polls.store(0, Ordering::Relaxed);
                    }
                    self.want_room(bound, true);
                }
                // Somebody who found no room after us may have asked for it before we took that back: look again.
                Sending::Idle | Sending::Ended if self.want_room(bound, false) => continue,
                Sending::Idle | Sending::Ended => {}
            }
            return self.look_ahead(bound, &outlook, out);
        }
    }

    /// Whoever comes late with a connection of the past may have framed what belongs on the next one, and may have been
    /// relied upon to send it. If the next one is not there yet, it sends when it comes.
    fn successor(&self, bound: &Bound) -> Option<Arc<Connection>> {
        if self.is_running() {
            return None;
        }
        let next = bound.slot.get()?;
        (!core::ptr::eq(&*next, self)).then_some(next)
    }

    /// Reads, and again while there is something and `again` says so of its length; whether anything came, and what is to be sent
    /// then.
    fn read(
        &self,
        bound: &Bound,
        mut again: impl FnMut(usize) -> bool,
        now: Time,
        out: &mut Outbox,
    ) -> (bool, Wants) {
        let (mut any, mut wants) = (false, Wants::Send);
        with_scratch(|scratch| {
            loop {
                let received = self.read_once(bound, scratch, now, out);
                wants = received.wants;
                match received.receiving {
                    Receiving::Some(n) => {
                        any |= n > 0;
                        // Also when the turn ends here: what is left must be told of.
                        self.listen(bound, true);
                        if !again(n) && !self.line.has_unread() {
                            break;
                        }
                    }
                    Receiving::Dry => {
                        self.listen(bound, true);
                        break;
                    }
                    Receiving::Held | Receiving::Ended => {
                        // A receive may have been posted by one who still saw us listen: look again.
                        if !self.listen(bound, false) {
                            break;
                        }
                    }
                }
            }
        });
        (any, wants)
    }

    /// Reads once: first what came along with the startup, then from the socket.
    fn read_once(
        &self,
        bound: &Bound,
        scratch: &mut [u8],
        now: Time,
        out: &mut Outbox,
    ) -> Received {
        if self.early.load(Ordering::Acquire)
            && let Phase::Running { early } = &mut *self.phase.lock()
            && !early.is_empty()
        {
            let received = read_early(&bound.qp, early, now, out);
            self.early.store(!early.is_empty(), Ordering::Release);
            return received;
        }
        bound.qp.receive(&mut &self.line, scratch, now, out)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.line.is_open()
    }

    /// What comes after a turn: a time to wake, a peer to watch, an end.
    fn look_ahead(&self, bound: &Bound, outlook: &Outlook, out: &mut Outbox) {
        match outlook.future {
            Future::Open => {}
            Future::Close => {
                let words = self.is_running().then(|| bound.qp.closing_words(out));
                let words = words.unwrap_or_default();
                if bound.qp.has_terminated() {
                    self.close_terminated(words, out);
                } else {
                    self.close(words, out);
                }
                return;
            }
            Future::Reset => return self.abort(out),
        }
        if let Some(deadline) = outlook.deadline {
            self.wake_at(deadline);
        }
        if outlook.dying && self.last_moment.load(Ordering::Acquire) == 0 {
            let last = sys::now() + self.core.config.linger;
            self.last_moment.store(last.nanos(), Ordering::Release);
            self.shard.at(last, self.token);
        }
        self.watch_for(bound, outlook);
    }

    fn wake_at(&self, when: Time) {
        // Asking again for a time that was asked for is harmless but costs a lock.
        if self.due.swap(when.nanos(), Ordering::AcqRel) != when.nanos() {
            self.shard.at(when, self.token);
        }
    }

    pub(super) fn turn_expired(self: Arc<Self>, now: Time) {
        let mut out = Outbox::new();
        let last = self.last_moment.load(Ordering::Acquire);
        let overdue = last != 0 && now.nanos() >= last;
        if self.is_running() && overdue {
            // It had its time, and the peer did not take the last words.
            self.abort(&mut out);
        } else if let Some(bound) = self.bound.get()
            && self.is_running()
        {
            self.due.store(0, Ordering::Release);
            let unproven = now >= self.startup && bound.qp.is_unproven();
            if unproven {
                // Its time to say who it is is over.
                bound.qp.handle_eof(true, &mut out);
            }
            let timeout = bound.qp.deadline().is_some_and(|when| when <= now);
            if timeout {
                bound.qp.handle_timeout(now, &mut out);
            }
            let nudge = self.nudge.load(Ordering::Acquire);
            let nudged = nudge != 0 && now.nanos() >= nudge;
            if nudged {
                self.nudge.store(0, Ordering::Release);
                bound.qp.nudge(&mut out);
            }
            // A mere look at the peer sends nothing: acknowledgements that were put off would leave unnoticed.
            let ends = self.watch_peer(bound, now, &mut out);
            if unproven || timeout || nudged || ends {
                self.send_now(&mut out);
                // What was waited for in vain may have been dropped, and the stream goes on.
                self.resume(&mut out);
            } else if let Some(when) = bound.qp.deadline() {
                self.wake_at(when);
            }
        } else {
            self.linger(&mut out);
        }
        self.core.deliver(&mut out);
    }
}

/// Bytes that came along with the startup.
fn read_early(qp: &Qp, early: &mut Vec<u8>, now: Time, out: &mut Outbox) -> Received {
    let mut hand = Hand::with(early);
    let received = qp.receive(&mut hand, &mut [0; 2048], now, out);
    let left = hand.came.len();
    match received.receiving {
        Receiving::Ended => early.clear(),
        _ => drop(early.drain(..early.len() - left)),
    }
    if early.is_empty() {
        *early = Vec::new();
    }
    received
}
