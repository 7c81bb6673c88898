//! Detects dead and stalled peers: a timer that runs while the peer owes something
//! (docs/connections.md, "Peers that die, stall or fall silent"). No timer runs on an idle connection; TCP keep-alive covers those.

use core::time::Duration;

use verbena_nic::Outbox;
use verbena_nic::qp::TurnStatus;
use verbena_stream::Time;
use verbena_sync::atomic::Ordering;

use super::rings::Rings;
use super::{Bound, Connection};
use crate::sys;

/// Interval of the timer.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Progress of a connection, and since when there was none.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes acknowledged by the peer's TCP plus bytes received.
    bytes: u64,
    since: Time,
    /// TCP keep-alive probes are more frequent than configured.
    probes: bool,
}

impl Connection {
    /// Since when the peer has neither sent nor taken anything although it should, within the timer's interval; `None` while nothing is due.
    pub(crate) fn stalled_since(&self) -> Option<Time> {
        let bound = self.bound.get()?;
        if !self.liveness_armed.load(Ordering::Acquire) {
            return None;
        }
        let counters = bound.qp.counters();
        let taken = counters
            .bytes_out
            .saturating_sub(self.transport.socket().unsent());
        let progress = self.progress.lock();
        // Otherwise there was progress since the timer last expired.
        (progress.bytes == counters.bytes_in + taken).then_some(progress.since)
    }

    /// Bytes that the peer has not taken: its process from shared memory, or its TCP.
    pub(crate) fn untaken(&self) -> u64 {
        let rings = self.transport.rings().and_then(Rings::unread);
        rings.unwrap_or_else(|| self.transport.socket().unsent())
    }

    /// Starts the timer after a turn, if the peer owes something and it is not running.
    pub(super) fn arm_liveness(&self, bound: &Bound, outlook: &TurnStatus) {
        // Loaded before it is swapped, because it is nearly always set. Also for a connection that only receives: its acknowledgements
        // may be lost, and TCP retransmits them for a quarter of an hour.
        let owes =
            || outlook.awaits_peer || outlook.sent != self.sent_when_idle.load(Ordering::Relaxed);
        let watch = !self.liveness_armed.load(Ordering::Acquire) && owes();
        if watch
            && bound.slot.peer_timeout().is_some()
            && !self.liveness_armed.swap(true, Ordering::AcqRel)
        {
            let now = sys::now();
            self.progress.lock().since = now;
            self.shard.set_timer(now + CHECK_INTERVAL, self.token);
        }
    }

    /// docs/connections.md, "Peers that die, stall or fall silent": a peer is dead if it owes an answer and its TCP is silent; one that
    /// only does not read or answer has stalled, and its limit is much longer.
    ///
    /// True if the peer was given up; the queue pair may have frames left to send.
    pub(super) fn check_liveness(&self, bound: &Bound, now: Time, out: &mut Outbox) -> bool {
        if !self.liveness_armed.load(Ordering::Acquire) {
            return false;
        }
        let socket = self.transport.socket();
        // Read first: bytes sent after this are noticed by the comparison below.
        let sent = bound.qp.counters().bytes_out;
        let (awaits, unsent) = (bound.qp.awaits_peer(), socket.unsent());
        let patience = bound.slot.peer_timeout();
        let Some(patience) = patience.filter(|_| awaits || unsent > 0) else {
            self.sent_when_idle.store(sent, Ordering::Relaxed);
            self.liveness_armed.store(false, Ordering::Release);
            self.probe(&mut self.progress.lock(), false, Duration::ZERO);
            // A turn in between may have found the timer still set.
            let more = || bound.qp.counters().bytes_out != sent || bound.qp.awaits_peer();
            if more() && !self.liveness_armed.swap(true, Ordering::AcqRel) {
                self.shard.set_timer(now + CHECK_INTERVAL, self.token);
            }
            return false;
        };
        let dead = socket.silence().is_some_and(|silent| silent > patience);
        let ends = dead || self.has_stalled(bound, unsent, patience, now);
        if ends {
            if awaits && bound.qp.init().qp_type.is_reliable() {
                bound.qp.handle_peer_dead(out);
            } else {
                // Requests have completed, or are not affected: the end of the connection reports it.
                bound.qp.handle_eof(true, out);
                self.abort(out);
                return true;
            }
        }
        self.shard.set_timer(now + CHECK_INTERVAL, self.token);
        ends
    }

    /// No progress for `stalled_after`, although there should be; a peer that reported RNR is not stalled.
    fn has_stalled(&self, bound: &Bound, unsent: u64, patience: Duration, now: Time) -> bool {
        let counters = bound.qp.counters();
        let bytes = counters.bytes_in + counters.bytes_out.saturating_sub(unsent);
        let mut progress = self.progress.lock();
        if progress.bytes != bytes || bound.qp.waits_for_receive() {
            (progress.bytes, progress.since) = (bytes, now);
            self.probe(&mut progress, false, patience);
            return false;
        }
        let still = now.since(progress.since);
        // The peer's machine may be down although its TCP owes nothing.
        self.probe(&mut progress, still >= patience / 2, patience);
        let limit = self.core.config.stalled_after;
        !limit.is_zero() && still >= limit
    }

    /// Makes keep-alive probes more frequent, or resets them to the configured interval.
    fn probe(&self, progress: &mut Progress, often: bool, patience: Duration) {
        let usual = self.core.config.keep_alive;
        if progress.probes == often || usual.is_zero() {
            return;
        }
        progress.probes = often;
        let idle = if often { usual.min(patience) } else { usual };
        let _ = self.transport.socket().set_keepalive(idle);
    }
}
