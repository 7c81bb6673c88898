//! A sender's reaction to acknowledgements, Naks and timeouts: retransmit from the first missing packet, wait, or fail. A packet
//! completes only after it was sent in full and acknowledged, numbers that are not in flight are ignored, and every reason for a
//! retransmission has a limit.

use core::time::Duration;

use verbena_nic::Outbox;
use verbena_nic::wc::{Status, WcOp};
use verbena_split_wire::cell::{NakReason, PacketSeq, PortAddress};
use verbena_stream::Time;

use super::{Cursor, SendState, Wqp};
use crate::config::Config;
use crate::descriptor::Peer;
use crate::notice::{Effects, EndReason};
use crate::state::State;

/// Limit on Naks for gaps or damage without progress; a long packet over a bad link needs some.
const MAX_NAKS: u32 = 1024;
/// Limit on the doublings of a delay.
const DOUBLINGS: u32 = 6;

/// The port and the time of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventContext<'a> {
    pub(crate) local: PortAddress,
    pub(crate) config: &'a Config,
    pub(crate) now: Time,
}

impl Wqp {
    /// Packets at the front of which at least one cell was sent.
    pub(super) fn started(&self) -> usize {
        let cursor = self.cursor.at + usize::from(self.cursor.cell > 0);
        self.fully_sent.max(cursor)
    }

    /// Handles an Ack or a Nak.
    pub(crate) fn on_answer(
        &mut self,
        from: Peer,
        connected: bool,
        (packet, nak): (PacketSeq, Option<NakReason>),
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let kind = self.init.kind;
        let ours = kind.acknowledged && kind.connected == connected && self.state.is_active();
        if !ours || kind.connected && self.peer != Some(from) {
            self.counters.stale_acks += 1;
            return;
        }
        if !connected {
            return self.connectionless_answer(from, packet, nak, moment, fx, out);
        }
        // An Ack names the last packet received, a Nak the first missing one.
        let there = match nak {
            None => packet.next(),
            Some(_) => packet,
        };
        let count = there.minus(self.una) as usize;
        if count > self.fully_sent {
            self.counters.stale_acks += 1;
            return;
        }
        self.restart_keepalive(moment.now, moment.config);
        if count > 0 {
            self.progress(count, moment);
            self.rtt.on_ack(there, moment.now);
            let overflowed = self.complete_sends(count, out);
            let waits = self.started() > 0;
            self.timer = waits.then(|| moment.now + self.retransmit_timeout(moment.config));
            self.note_overflow(moment.local, overflowed, fx, out);
        }
        // A Nak for packets that were acknowledged since is only an acknowledgement.
        let waits = self.started() > 0 || self.hold.is_some();
        if let Some(reason) = nak.filter(|_| waits) {
            self.on_nak(reason, moment, fx, out);
        }
    }

    /// Packets were acknowledged: resets the retry counters, and the window grows by one per window.
    fn progress(&mut self, count: usize, moment: &EventContext<'_>) {
        (self.tries, self.busy, self.naks) = (0, 0, 0);
        self.silent_since = None;
        self.hold = None;
        self.credit += count;
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(moment.config.window);
        }
    }

    fn on_nak(
        &mut self,
        reason: NakReason,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.state != State::Connected {
            return;
        }
        let (here, config) = (moment.local, moment.config);
        match reason {
            NakReason::NoBuffer => {
                self.busy += 1;
                if self.busy > config.busy_retries {
                    return self.fail(
                        here,
                        EndReason::NoReceive,
                        Some(Status::RnrRetryExcErr),
                        fx,
                        out,
                    );
                }
                self.rewind();
                let delay = config.busy_delay * (1 << self.busy.min(DOUBLINGS));
                self.hold = Some(moment.now + delay);
                self.timer = None;
            }
            NakReason::Handle | NakReason::Bounds | NakReason::Right => {
                let op = self.sends.front().map(|queued| queued.op);
                let status = peer_status(reason, op);
                self.fail(here, EndReason::Refused, Some(status), fx, out);
            }
            NakReason::Gap | NakReason::Crc | NakReason::Unknown(_) => {
                self.naks += 1;
                if self.naks > MAX_NAKS {
                    return self.fail(
                        here,
                        EndReason::TooManyNaks,
                        Some(Status::RemOpErr),
                        fx,
                        out,
                    );
                }
                self.hold = None;
                self.rewind();
                // Losses indicate congestion on the path or at the peer: reduce the window by a quarter.
                self.window -= self.window / 4;
                self.timer = Some(moment.now + self.retransmit_timeout(config));
            }
        }
    }

    /// Restarts at the first packet that is not acknowledged.
    fn rewind(&mut self) {
        self.cursor = Cursor::default();
        self.rtt.discard_sample();
        self.counters.retransmissions += 1;
    }

    /// Handles expired timers.
    pub(crate) fn on_timeout(
        &mut self,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let now = moment.now;
        if self.hold.is_some_and(|until| until <= now) {
            self.hold = None;
        }
        if self.timer.is_some_and(|until| until <= now) {
            self.timer = None;
            match self.state {
                State::Connecting => self.on_connect_timeout(now, moment.config, fx),
                State::Connected => self.on_retransmit_timeout(moment, fx, out),
                State::Idle | State::Open | State::Ended => {}
            }
        }
        if self.keepalive.next_probe.is_some_and(|until| until <= now) {
            self.on_keepalive_timeout(moment, fx, out);
        }
        if self.state == State::Open {
            self.connectionless_timeout(moment, fx, out);
        }
    }

    /// The retransmission timer expired.
    fn on_retransmit_timeout(
        &mut self,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.started() == 0 {
            return;
        }
        self.tries = self.tries.saturating_add(1);
        let since = *self.silent_since.get_or_insert(moment.now);
        let silent = moment.now.since(since);
        if self.tries > moment.config.retries && silent >= moment.config.patience {
            let status = Some(Status::RetryExcErr);
            return self.fail(moment.local, EndReason::PeerTimeout, status, fx, out);
        }
        self.rewind();
        self.window = (self.window / 2).max(1);
        self.timer = Some(moment.now + self.retransmit_timeout(moment.config));
    }

    /// The current retransmission timeout.
    pub(super) fn retransmit_timeout(&self, config: &Config) -> Duration {
        self.rtt.timeout(config) * (1 << self.tries.min(DOUBLINGS))
    }

    /// An answer to a connectionless packet concerns that packet only.
    fn connectionless_answer(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        nak: Option<NakReason>,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let config = moment.config;
        let at = packet.minus(self.una) as usize;
        let under_way = |fate| matches!(fate, SendState::Sent(_) | SendState::Held(_));
        let queued = self.sends.get_mut(at);
        let Some(queued) = queued.filter(|q| q.destination == Some(from) && under_way(q.state))
        else {
            self.counters.stale_acks += 1;
            return;
        };
        queued.state = match nak {
            None => SendState::Done(Status::Success),
            Some(NakReason::NoBuffer) => {
                queued.busy += 1;
                let delay = config.busy_delay * (1 << queued.busy.min(DOUBLINGS));
                if queued.busy > config.busy_retries {
                    SendState::Done(Status::RnrRetryExcErr)
                } else {
                    SendState::Held(moment.now + delay)
                }
            }
            Some(reason @ (NakReason::Handle | NakReason::Bounds | NakReason::Right)) => {
                SendState::Done(peer_status(reason, Some(queued.op)))
            }
            Some(_) => {
                queued.tries += 1;
                if queued.tries > config.retries {
                    SendState::Done(Status::RemOpErr)
                } else {
                    SendState::Waiting
                }
            }
        };
        let overflowed = self.complete_done(out);
        self.note_overflow(moment.local, overflowed, fx, out);
    }

    /// Times out connectionless packets; a destination that does not answer does not affect others.
    fn connectionless_timeout(
        &mut self,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let now = moment.now;
        for queued in &mut self.sends {
            queued.state = match queued.state {
                SendState::Held(until) if until <= now => SendState::Waiting,
                SendState::Sent(until) if until <= now => {
                    queued.tries += 1;
                    self.counters.retransmissions += 1;
                    if queued.tries > moment.config.retries {
                        SendState::Done(Status::RetryExcErr)
                    } else {
                        SendState::Waiting
                    }
                }
                fate => fate,
            };
        }
        let overflowed = self.complete_done(out);
        self.note_overflow(moment.local, overflowed, fx, out);
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
