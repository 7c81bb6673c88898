//! A sender's reaction to acknowledgements, Naks and timeouts: retransmit from the first missing packet, wait, or fail. A packet
//! completes only after it was sent in full and acknowledged, numbers that are not in flight are ignored, and every reason for a
//! retransmission has a limit.

use core::time::Duration;

use verbena_nic::Outbox;
use verbena_nic::wc::{Status, WcOp};
use verbena_stream::Time;
use verbena_wire::cell::{NakReason, PacketSeq, PortAddress};

use super::{Cursor, Fate, Wqp};
use crate::config::Config;
use crate::descriptor::Peer;
use crate::notice::{Effects, Why};
use crate::state::State;

/// Limit on Naks for gaps or damage without progress; a long packet over a bad link needs some.
const MAX_NAKS: u32 = 1024;
/// Limit on the doublings of a delay.
const DOUBLINGS: u32 = 6;

/// The port and the time of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) here: PortAddress,
    pub(crate) config: &'a Config,
    pub(crate) now: Time,
}

impl Wqp {
    /// Packets at the front of which at least one cell was sent.
    pub(super) fn begun(&self) -> usize {
        let cursor = self.cursor.at + usize::from(self.cursor.cell > 0);
        self.whole.max(cursor)
    }

    /// Handles an Ack or a Nak.
    pub(crate) fn on_answer(
        &mut self,
        from: Peer,
        connected: bool,
        (packet, nak): (PacketSeq, Option<NakReason>),
        moment: &Moment<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let kind = self.init.kind;
        let ours = kind.acknowledged && kind.connected == connected && self.state.works();
        if !ours || kind.connected && self.peer != Some(from) {
            self.counters.stale_acks += 1;
            return;
        }
        if !connected {
            return self.loose_answer(from, packet, nak, moment, fx, out);
        }
        // An Ack names the last packet received, a Nak the first missing one.
        let there = match nak {
            None => packet.next(),
            Some(_) => packet,
        };
        let count = there.minus(self.una) as usize;
        if count > self.whole {
            self.counters.stale_acks += 1;
            return;
        }
        self.hear(moment.now, moment.config);
        if count > 0 {
            self.progress(count, moment);
            self.pace.answered(there, moment.now);
            let overflowed = self.complete_sends(count, out);
            let waits = self.begun() > 0;
            self.timer = waits.then(|| moment.now + self.patience(moment.config));
            self.note_overflow(moment.here, overflowed, fx, out);
        }
        // A Nak for packets that were acknowledged since is only an acknowledgement.
        let waits = self.begun() > 0 || self.hold.is_some();
        if let Some(reason) = nak.filter(|_| waits) {
            self.refused_by_peer(reason, moment, fx, out);
        }
    }

    /// Packets were acknowledged: resets the retry counters, and the window grows by one per window.
    fn progress(&mut self, count: usize, moment: &Moment<'_>) {
        (self.tries, self.busy, self.naks) = (0, 0, 0);
        self.silent_since = None;
        self.hold = None;
        self.credit += count;
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(moment.config.window);
        }
    }

    fn refused_by_peer(
        &mut self,
        reason: NakReason,
        moment: &Moment<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.state != State::Connected {
            return;
        }
        let (here, config) = (moment.here, moment.config);
        match reason {
            NakReason::NoBuffer => {
                self.busy += 1;
                if self.busy > config.busy_retries {
                    return self.fail(here, Why::Busy, Some(Status::RnrRetryExcErr), fx, out);
                }
                self.rewind();
                let delay = config.busy_delay * (1 << self.busy.min(DOUBLINGS));
                self.hold = Some(moment.now + delay);
                self.timer = None;
            }
            NakReason::Handle | NakReason::Bounds | NakReason::Right => {
                let op = self.sends.front().map(|queued| queued.op);
                let status = peer_status(reason, op);
                self.fail(here, Why::Refused, Some(status), fx, out);
            }
            NakReason::Gap | NakReason::Crc | NakReason::Unknown(_) => {
                self.naks += 1;
                if self.naks > MAX_NAKS {
                    return self.fail(here, Why::Damaged, Some(Status::RemOpErr), fx, out);
                }
                self.hold = None;
                self.rewind();
                // Losses indicate congestion on the path or at the peer: reduce the window by a quarter.
                self.window -= self.window / 4;
                self.timer = Some(moment.now + self.patience(config));
            }
        }
    }

    /// Restarts at the first packet that is not acknowledged.
    fn rewind(&mut self) {
        self.cursor = Cursor::default();
        self.pace.forget();
        self.counters.rewinds += 1;
    }

    /// Handles expired timers.
    pub(crate) fn on_time(&mut self, moment: &Moment<'_>, fx: &mut Effects, out: &mut Outbox) {
        let now = moment.now;
        if self.hold.is_some_and(|until| until <= now) {
            self.hold = None;
        }
        if self.timer.is_some_and(|until| until <= now) {
            self.timer = None;
            match self.state {
                State::Connecting => self.ask_again(now, moment.config, fx),
                State::Connected => self.silence(moment, fx, out),
                State::Idle | State::Open | State::Ended => {}
            }
        }
        if self.alive.until.is_some_and(|until| until <= now) {
            self.ask_if_alive(moment, fx, out);
        }
        if self.state == State::Open {
            self.loose_time(moment, fx, out);
        }
    }

    /// The retransmission timer expired.
    fn silence(&mut self, moment: &Moment<'_>, fx: &mut Effects, out: &mut Outbox) {
        if self.begun() == 0 {
            return;
        }
        self.tries = self.tries.saturating_add(1);
        let since = *self.silent_since.get_or_insert(moment.now);
        let silent = moment.now.since(since);
        if self.tries > moment.config.retries && silent >= moment.config.patience {
            let status = Some(Status::RetryExcErr);
            return self.fail(moment.here, Why::Silent, status, fx, out);
        }
        self.rewind();
        self.window = (self.window / 2).max(1);
        self.timer = Some(moment.now + self.patience(moment.config));
    }

    /// The current retransmission timeout.
    pub(super) fn patience(&self, config: &Config) -> Duration {
        self.pace.timeout(config) * (1 << self.tries.min(DOUBLINGS))
    }

    /// An answer to a connectionless packet concerns that packet only.
    fn loose_answer(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        nak: Option<NakReason>,
        moment: &Moment<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let config = moment.config;
        let at = packet.minus(self.una) as usize;
        let under_way = |fate| matches!(fate, Fate::Sent(_) | Fate::Held(_));
        let queued = self.sends.get_mut(at);
        let Some(queued) = queued.filter(|q| q.destination == Some(from) && under_way(q.fate))
        else {
            self.counters.stale_acks += 1;
            return;
        };
        queued.fate = match nak {
            None => Fate::Done(Status::Success),
            Some(NakReason::NoBuffer) => {
                queued.busy += 1;
                let delay = config.busy_delay * (1 << queued.busy.min(DOUBLINGS));
                if queued.busy > config.busy_retries {
                    Fate::Done(Status::RnrRetryExcErr)
                } else {
                    Fate::Held(moment.now + delay)
                }
            }
            Some(reason @ (NakReason::Handle | NakReason::Bounds | NakReason::Right)) => {
                Fate::Done(peer_status(reason, Some(queued.op)))
            }
            Some(_) => {
                queued.tries += 1;
                if queued.tries > config.retries {
                    Fate::Done(Status::RemOpErr)
                } else {
                    Fate::Waiting
                }
            }
        };
        let overflowed = self.complete_done(out);
        self.note_overflow(moment.here, overflowed, fx, out);
    }

    /// Times out connectionless packets; a destination that does not answer does not affect others.
    fn loose_time(&mut self, moment: &Moment<'_>, fx: &mut Effects, out: &mut Outbox) {
        let now = moment.now;
        for queued in &mut self.sends {
            queued.fate = match queued.fate {
                Fate::Held(until) if until <= now => Fate::Waiting,
                Fate::Sent(until) if until <= now => {
                    queued.tries += 1;
                    self.counters.rewinds += 1;
                    if queued.tries > moment.config.retries {
                        Fate::Done(Status::RetryExcErr)
                    } else {
                        Fate::Waiting
                    }
                }
                fate => fate,
            };
        }
        let overflowed = self.complete_done(out);
        self.note_overflow(moment.here, overflowed, fx, out);
    }
}

/// The status of a descriptor that the peer refused permanently.
fn peer_status(reason: NakReason, op: Option<WcOp>) -> Status {
    match (reason, op) {
        // The peer's receive is too small.
        (NakReason::Bounds, Some(WcOp::Send)) => Status::RemInvReqErr,
        _ => Status::RemAccessErr,
    }
}
