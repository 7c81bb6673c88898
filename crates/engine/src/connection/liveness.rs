//! Whether the peer is still there: a timer that runs while the peer owes something, and what it concludes
//! (docs/connections.md, "Peers that die, stall or fall silent"). No timer runs on an idle connection; the system's keep-alive
//! looks after those.

use core::time::Duration;
use std::sync::atomic::Ordering;

use verbena_nic::qp::Outlook;
use verbena_nic::{Outbox, QpType};
use verbena_stream::Time;

use super::{Bound, Connection};
use crate::sys;

/// How often a peer that owes an answer is looked at.
const WATCH: Duration = Duration::from_millis(500);

/// How far a connection had come, and when that was.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes that the peer's TCP has taken and those that came, together.
    bytes: u64,
    since: Time,
    /// The system asks the peer for signs of life more often than usual.
    probes: bool,
}

impl Connection {
    /// Starts the timer after a turn, if the peer owes something and none runs.
    pub(super) fn watch_for(&self, bound: &Bound, outlook: &Outlook) {
        // Looked at before it is exchanged: it is nearly always set.
        // Also of one that only receives: its own acknowledgements may stay unanswered, and TCP repeats them for a quarter of an hour.
        let owes = || outlook.awaits_peer || outlook.sent != self.settled.load(Ordering::Relaxed);
        let watch = !self.watched.load(Ordering::Acquire) && owes();
        if watch && bound.slot.patience().is_some() && !self.watched.swap(true, Ordering::AcqRel) {
            let now = sys::now();
            self.progress.lock().since = now;
            self.shard.at(now + WATCH, self.token);
        }
    }

    /// docs/connections.md, "Peers that die, stall or fall silent": a peer is dead when it owes an answer and its TCP is
    /// silent; one that merely does not read, or answer, has stalled, and is waited for much longer.
    ///
    /// True if the peer was given up, and the queue pair has last words or none.
    pub(super) fn watch_peer(&self, bound: &Bound, now: Time, out: &mut Outbox) -> bool {
        if !self.watched.load(Ordering::Acquire) {
            return false;
        }
        let socket = self.line.socket();
        // Before the rest: what is sent meanwhile is watched for again.
        let sent = bound.qp.counters().bytes_out;
        let (awaits, unsent) = (bound.qp.awaits_peer(), socket.unsent());
        let patience = bound.slot.patience();
        let Some(patience) = patience.filter(|_| awaits || unsent > 0) else {
            self.settled.store(sent, Ordering::Relaxed);
            self.watched.store(false, Ordering::Release);
            self.probe(&mut self.progress.lock(), false, Duration::ZERO);
            // A turn in between found the timer still set.
            let more = || bound.qp.counters().bytes_out != sent || bound.qp.awaits_peer();
            if more() && !self.watched.swap(true, Ordering::AcqRel) {
                self.shard.at(now + WATCH, self.token);
            }
            return false;
        };
        let dead = socket.silence().is_some_and(|silent| silent > patience);
        let ends = dead || self.has_stalled(bound, unsent, patience, now);
        if ends {
            if awaits && bound.qp.init().qp_type == QpType::Rc {
                bound.qp.handle_peer_dead(out);
            } else {
                // Requests have completed, or notice nothing: the end of the connection tells.
                bound.qp.handle_eof(true, out);
                self.abort(out);
                return true;
            }
        }
        self.shard.at(now + WATCH, self.token);
        ends
    }

    /// Nothing has moved for as long as the settings allow, although something should: a peer without a receive has said so.
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
        // Its TCP may owe nothing, and its machine be gone all the same.
        self.probe(&mut progress, still >= patience / 2, patience);
        let limit = self.core.config.stalled_after;
        !limit.is_zero() && still >= limit
    }

    /// Has the system ask for signs of life more often, or as often as usual.
    fn probe(&self, progress: &mut Progress, often: bool, patience: Duration) {
        let usual = self.core.config.keep_alive;
        if progress.probes == often || usual.is_zero() {
            return;
        }
        progress.probes = often;
        let idle = if often { usual.min(patience) } else { usual };
        let _ = self.line.socket().keep_alive(idle);
    }
}
