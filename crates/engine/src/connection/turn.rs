//! Turns of a running connection: by its shard, by a polling thread, or by a posting thread.
//! Each turn ends with sending, so a thread that finds the queue pair busy may leave its work to the thread that is there.
//! Effects that must wait until no lock is held go to the outbox. Nothing here blocks.

use std::cell::Cell;
use std::sync::Arc;

use verbena_nic::qp::{ConnectionAction, TurnStatus};
use verbena_nic::qp::{Received, SendDemand};
use verbena_nic::{Acks, MemoryCarrier, Outbox, Qp, Receiving, Sending};
use verbena_stream::Time;
use verbena_sync::atomic::{Ordering, fence};
use verbena_sync::thread::thread_local;

use super::transport::BudgetedTransport;
use super::{Bound, Connection, Phase};
use crate::sys;

/// Reads per turn; then other connections are served.
const READS: usize = 16;
/// A polling thread that read at least `LONG` bytes reads again at once, up to `POLLED` bytes: during a stream the group's other
/// sockets are not polled in vain for each message, and a poll finds several completions.
const LONG: usize = 32 << 10;
const POLLED: usize = 256 << 10;
/// Bytes sent per turn; a polling thread must return well before `lend_time`.
const WRITES: usize = 1 << 20;
/// The same where the stream is in shared memory: both processes copy, so that they should alternate while the bytes are in their caches.
const RING_WRITES: usize = 256 << 10;
/// Buffer for bytes that are not placed directly: several of the longest frames.
const SCRATCH: usize = 256 << 10;
/// Polls between two attempts to write to a full socket.
const FULL_SOCKET_POLLS: u32 = 8;
/// Acknowledgements that are sent at once after one was deferred for too long.
const ACKS_AFTER_LATE: u32 = 256;
/// Turns of a new connection whose acknowledgements are sent at once. A process that is killed with unread messages in its socket
/// loses the acknowledgements that it deferred; short exchanges must not depend on them (docs/connections.md).
pub(super) const INITIAL_IMMEDIATE_ACKS: u32 = 64;

thread_local! {
    /// None while it is in use.
    static STAGE: Cell<Option<Vec<u8>>> = const { Cell::new(Some(Vec::new())) };
}

/// Runs `work` with the thread's scratch buffer.
fn with_scratch<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    // A smaller buffer serves a handler that polls during a turn of its thread, and a thread whose thread-local storage is
    // destroyed already (during `exit`).
    let Some(mut stage) = STAGE.try_with(Cell::take).ok().flatten() else {
        return work(&mut [0; 2048]);
    };
    stage.resize(SCRATCH, 0);
    let done = work(&mut stage);
    // Cannot fail: the thread-local exists until the thread ends.
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
            // The shard learns of all other events of the socket.
            self.linger(out);
            return;
        }
        if let Some(rings) = self.transport.rings() {
            rings.wake();
            rings.end_if_asked();
        }
        let mut left = READS;
        let again = |_| {
            left = usize::saturating_sub(left, 1);
            left > 0
        };
        let (_, wants) = self.read(bound, again, sys::now(), out);
        if self.awaits_token.load(Ordering::Relaxed) {
            self.offer_rings(bound);
        }
        if wants == SendDemand::Acks {
            bound.group.note_data();
        }
        self.send_now(out);
        self.prepare_ring_sleep();
    }

    /// A turn of a polling thread. If the program answers at once, the acknowledgement is sent with the answer. True if it was
    /// deferred.
    pub(super) fn polled_turn(&self, now: Time, out: &mut Outbox) -> bool {
        let Some(bound) = self.bound.get() else {
            return false;
        };
        if !self.is_running() {
            self.linger(out);
            return false;
        }
        if self.transport.passes_elsewhere() {
            if let Some(line) = self.transport.line() {
                line.poll();
            } else if let Some(rings) = self.transport.rings()
                && rings.is_asleep()
            {
                rings.wake();
                bound.group.note_polled_awake();
            }
        }
        let mut bytes = 0;
        let again = |n| {
            bytes += n;
            n >= LONG && bytes < POLLED
        };
        let (any, wants) = self.read(bound, again, now, out);
        if self.awaits_token.load(Ordering::Relaxed) {
            self.offer_rings(bound);
        }
        if wants == SendDemand::Acks {
            bound.group.note_data();
        }
        // Deferred only if something was received: the caller then posts an answer or polls again, and an empty poll sends what was deferred.
        let put_off = any && wants != SendDemand::Nothing && self.may_defer_ack();
        if put_off {
            self.deferred.store(true, Ordering::SeqCst);
            // Limited: a peer that sends continuously is acknowledged after `ack_requests` or `ack_bytes`.
            if wants == SendDemand::Send && self.may_retry_write() {
                self.send(out);
            }
        } else if (wants != SendDemand::Nothing || self.transport.has_unsent())
            && self.may_retry_write()
        {
            // Sends what was deferred before, too; the flag stays set, which is harmless.
            self.send_now(out);
        }
        put_off
    }

    /// A polling thread tries a full socket only every [`FULL_SOCKET_POLLS`] polls, because each attempt is a system call.
    fn may_retry_write(&self) -> bool {
        let look = || self.polls.fetch_add(1, Ordering::Relaxed);
        !self.watch.wants_room() || look().is_multiple_of(FULL_SOCKET_POLLS)
    }

    /// Whether to defer an acknowledgement: useful for a program that answers or polls again at once. After one was sent late, the
    /// next [`ACKS_AFTER_LATE`] are sent immediately.
    fn may_defer_ack(&self) -> bool {
        if self.core.config.ack_delay.is_zero() {
            return false;
        }
        let less = |n: u32| n.checked_sub(1);
        self.immediate_acks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_err()
    }

    /// Sends what a polling thread deferred; `late` if the shard does so because that thread stayed away.
    pub(super) fn send_deferred_acks(&self, late: bool, out: &mut Outbox) {
        if !self.deferred.swap(false, Ordering::SeqCst) {
            return;
        }
        let sent = || self.bound.get().map(|b| b.qp.counters().bytes_out);
        let before = sent();
        self.send_now(out);
        // It was not late if it has already been sent with a post.
        if late && sent() != before {
            self.immediate_acks
                .store(ACKS_AFTER_LATE, Ordering::Relaxed);
        }
    }

    /// Continues reading if it was stopped for a missing receive that has been posted now.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.watch.is_read_disabled() {
            self.resume_segments(out);
            self.full_turn(out);
        }
    }

    /// Sends what may be sent, unless another thread is at work, which then does. Acknowledgements alone are left to the thread that
    /// received the requests: a shard sends them at the end of its turn, a polling thread when it finds nothing more.
    pub(crate) fn send(&self, out: &mut Outbox) {
        self.transmit(Acks::Piggyback, out);
    }

    pub(super) fn send_now(&self, out: &mut Outbox) {
        self.transmit(Acks::Now, out);
    }

    /// Events that are added from now on are raised with the addresses of the connection, if events are steered by them (E8).
    #[inline]
    pub(super) fn begin_packet(&self, out: &mut Outbox) {
        let ends = || Some((self.peer, self.transport.socket().local_addr().ok()?));
        let steered = self.core.notification.steers_packets();
        self.packet.begin(steered, ends, out);
    }

    fn transmit(&self, acks: Acks, out: &mut Outbox) {
        if let Some(bound) = self.bound.get() {
            self.begin_packet(out);
            self.transmit_bound(bound, acks, out);
            out.end_packet();
        }
    }

    fn transmit_bound(&self, bound: &Bound, acks: Acks, out: &mut Outbox) {
        let in_rings = self.transport.rings().is_some();
        let most = if in_rings { RING_WRITES } else { WRITES };
        loop {
            let (mut carrier, now) = (BudgetedTransport::new(&self.transport, most), sys::now());
            let sent = bound.qp.try_transmit(&mut carrier, acks, now, out);
            let Some((sending, outlook)) = sent else {
                return;
            };
            if let Some(next) = self.next_connection(bound) {
                return next.transmit(acks, out);
            }
            match sending {
                // Records that TLS has accepted also wait for room in the socket.
                Sending::Idle | Sending::Ended if self.transport.is_flush_blocked() => {
                    self.want_room(bound, true);
                }
                // If room is watched for needlessly, that causes one wake-up and ends.
                Sending::Blocked => {
                    let exhausted = carrier.is_exhausted();
                    if exhausted {
                        // The turn's limit was reached and there may be room: the next poll tries.
                        self.polls.store(0, Ordering::Relaxed);
                    }
                    self.want_room(bound, true);
                    if exhausted {
                        self.resume_ring_later();
                    } else if self.has_ring_room() {
                        continue;
                    }
                }
                // A thread that found no room after this turn may have requested the watch before it was withdrawn: try again.
                Sending::Idle | Sending::Ended if self.want_room(bound, false) => continue,
                Sending::Idle | Sending::Ended => {}
            }
            return self.finish_turn(bound, &outlook, out);
        }
    }

    /// The turn's limit was reached, and the ring or the port may have room: a thread that sleeps, or that of the port, sends the rest. A poller reports a socket with room; a thread
    /// that begins to sleep finds the room itself.
    fn resume_ring_later(&self) {
        if let Some(rings) = self.transport.rings() {
            fence(Ordering::SeqCst);
            rings.wake_sleeper();
        } else if let Some(line) = self.transport.line() {
            line.ask_for_room();
        }
    }

    /// The ring was full and has room now. If not, and no thread serves the connection, the peer wakes one when there is.
    fn has_ring_room(&self) -> bool {
        let Some(rings) = self.transport.rings() else {
            return false;
        };
        // After the wish for room was stored; a thread that begins to sleep does both in the opposite order.
        fence(Ordering::SeqCst);
        rings.is_asleep() && !rings.wait_for_room()
    }

    /// A thread that is late with a closed connection may have framed bytes for the queue pair's next one, and other threads may rely on it to
    /// send them. If there is no next connection yet, its first turn sends them.
    fn next_connection(&self, bound: &Bound) -> Option<Arc<Connection>> {
        if self.is_running() {
            return None;
        }
        let next = bound.slot.get()?;
        (!core::ptr::eq(&*next, self)).then_some(next)
    }

    /// Reads repeatedly while there is input and `again` agrees, given the length; returns whether anything was received, and what is
    /// to be sent.
    fn read(
        &self,
        bound: &Bound,
        mut again: impl FnMut(usize) -> bool,
        now: Time,
        out: &mut Outbox,
    ) -> (bool, SendDemand) {
        let (mut any, mut wants) = (false, SendDemand::Send);
        self.begin_packet(out);
        with_scratch(|scratch| {
            loop {
                let received = self.read_once(bound, scratch, now, out);
                wants = received.demand;
                match received.receiving {
                    Receiving::Some(n) => {
                        any |= n > 0;
                        // Also when the turn ends here: the poller must report the rest.
                        self.watch_input(bound, true);
                        if !again(n) && !self.transport.has_unread() {
                            break;
                        }
                    }
                    Receiving::WouldBlock => {
                        self.watch_input(bound, true);
                        break;
                    }
                    Receiving::Held | Receiving::Ended => {
                        // A receive may have been posted by a thread that still saw input watched: try again.
                        if !self.watch_input(bound, false) {
                            break;
                        }
                    }
                }
            }
        });
        out.end_packet();
        (any, wants)
    }

    /// Reads once: first bytes received with the startup, then from the socket.
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
        bound.qp.receive(&mut &self.transport, scratch, now, out)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.transport.is_open()
    }

    /// Follow-up of a turn: timers, watching the peer, or the end of the connection.
    fn finish_turn(&self, bound: &Bound, outlook: &TurnStatus, out: &mut Outbox) {
        match outlook.action {
            ConnectionAction::Open => {}
            ConnectionAction::Close => {
                let words = self.is_running().then(|| bound.qp.closing_bytes(out));
                let words = words.unwrap_or_default();
                if bound.qp.has_terminated() {
                    self.close_terminated(words, out);
                } else {
                    self.close(words, out);
                }
                return;
            }
            ConnectionAction::Reset => return self.abort(out),
        }
        if let Some(deadline) = outlook.deadline {
            self.wake_at(deadline);
        }
        if outlook.closing && self.flush_deadline.load(Ordering::Acquire) == 0 {
            let last = sys::now() + self.core.config.linger;
            self.flush_deadline.store(last.nanos(), Ordering::Release);
            self.shard.set_timer(last, self.token);
        }
        self.arm_liveness(bound, outlook);
    }

    fn wake_at(&self, when: Time) {
        // Requesting the same time again is harmless but takes a lock.
        if self.wake_time.swap(when.nanos(), Ordering::AcqRel) != when.nanos() {
            self.shard.set_timer(when, self.token);
        }
    }

    pub(super) fn turn_expired(self: Arc<Self>, now: Time) {
        let mut out = Outbox::new();
        let last = self.flush_deadline.load(Ordering::Acquire);
        let overdue = last != 0 && now.nanos() >= last;
        if self.is_running() && overdue {
            // The time limit has passed, and the peer did not take the remaining frames.
            self.abort(&mut out);
        } else if let Some(bound) = self.bound.get()
            && self.is_running()
        {
            self.wake_time.store(0, Ordering::Release);
            let unproven = now >= self.startup_deadline && bound.qp.is_unauthenticated();
            if unproven {
                // The peer did not authenticate itself in time.
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
                bound.qp.send_empty_frame(&mut out);
            }
            // The check of the peer must not send: deferred acknowledgements would be sent without being recorded.
            let ends = self.check_liveness(bound, now, &mut out);
            if unproven || timeout || nudged || ends {
                self.send_now(&mut out);
                // The operation that timed out may have been dropped, and the stream continues.
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

/// Processes bytes received with the startup.
fn read_early(qp: &Qp, early: &mut Vec<u8>, now: Time, out: &mut Outbox) -> Received {
    let mut hand = MemoryCarrier::with_input(early);
    let received = qp.receive(&mut hand, &mut [0; 2048], now, out);
    let left = hand.input.len();
    match received.receiving {
        Receiving::Ended => early.clear(),
        _ => drop(early.drain(..early.len() - left)),
    }
    if early.is_empty() {
        *early = Vec::new();
    }
    received
}
