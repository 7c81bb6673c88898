//! An arrived segment: checks, acknowledgement, data, end (RFC 9293, 3.10.7, with RFC 5961 and RFC 7323).
//! A segment that fails a check changes nothing but counters and timers, and is answered at most once.

use core::time::Duration;

use arrayvec::ArrayVec;
use verbena_stream::Time;

use super::receiver::Range;
use super::scoreboard::{Acknowledgement, Progress};
use super::segment::MAX_SACK_BLOCKS;
use super::seq::{Offset, SYN, distance, is_before, stream_offset};
use super::{CloseReason, Connection, Received, Recovery, Run, Segment, State, StateEvent};

/// A timestamp that was remembered longer ago says nothing (RFC 7323, 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);
/// Repeated acknowledgements that stand for a loss, where there are no selective ones (RFC 5681, 3.2).
const DUPLICATE_ACKS: u32 = 3;
/// The length of one step of the clock that timestamps show.
const TICK: u64 = 1_000_000;

impl Connection {
    /// Takes in a segment of this connection with `len` bytes of payload.
    pub fn handle_segment(&mut self, segment: &Segment, len: usize, now: Time) -> Received {
        self.counters.segments_in += 1;
        let mut received = Received::default();
        match self.state {
            State::Closed => {}
            State::SynSent => self.handle_in_syn_sent(segment, now),
            _ => self.handle_in_window(segment, len, now, &mut received),
        }
        received.in_order = self.in_order();
        received
    }

    /// RFC 9293, 3.10.7.3.
    fn handle_in_syn_sent(&mut self, segment: &Segment, now: Time) {
        let acks_syn = segment.ack.map(|ack| ack == self.ours.wire(0));
        if acks_syn == Some(false) {
            if !segment.flags.rst {
                self.reset_for(segment.ack);
            }
            return;
        }
        if segment.flags.rst {
            if acks_syn.is_some() {
                self.end(CloseReason::Refused);
            }
            return;
        }
        if !segment.flags.syn {
            return;
        }
        self.heard_at = now;
        self.negotiate(segment, now);
        if acks_syn.is_some() {
            self.syn_acknowledged(now);
            self.owed.now = true;
            self.apply(StateEvent::SynAck, now);
        } else {
            // Both have opened at once.
            self.handshake.is_due = true;
            self.apply(StateEvent::Syn, now);
        }
    }

    /// A reset that is valid for a peer which acknowledges what was never sent.
    fn reset_for(&mut self, ack: Option<u32>) {
        let mut reset = self.plain(ack.unwrap_or(0));
        reset.flags.rst = true;
        self.reply = Some(reset);
    }

    fn syn_acknowledged(&mut self, now: Time) {
        if let Some(at) = self.handshake.sent_at
            && !self.handshake.retransmitted
        {
            self.rtt.sample(now.since(at), now);
        }
        self.rtt.reset_backoff();
        self.handshake.is_done = true;
        self.handshake.is_due = false;
        self.timers.rto = None;
    }

    /// RFC 9293, 3.10.7.4.
    fn handle_in_window(
        &mut self,
        segment: &Segment,
        len: usize,
        now: Time,
        received: &mut Received,
    ) {
        let mut start = self.theirs.offset(segment.seq, self.rx.next());
        let mut is_syn = segment.flags.syn;
        let data = distance(len as u64);
        if is_syn && self.state == State::SynReceived && start == SYN {
            // Our SYN was lost, or this is the answer to it when both have opened at once.
            is_syn = false;
            start = 0;
            if segment.ack.is_none() {
                self.handshake.is_due |= self.challenges.admits(now);
                return;
            }
        }
        if !self.passes_stamps(segment, now) {
            return;
        }
        let span = data + Offset::from(segment.flags.fin) + Offset::from(is_syn);
        if !self.rx.is_acceptable(start, span) {
            if !segment.flags.rst {
                self.answer_unacceptable(span, now);
            }
            return;
        }
        if segment.flags.rst {
            self.handle_reset(start, now);
            return;
        }
        if is_syn {
            self.challenge(now);
            return;
        }
        self.remember_stamp(segment, start, now);
        let Some(ack) = segment.ack else { return };
        if !self.handle_ack(segment, ack, start, span, now) {
            return;
        }
        self.heard_at = now;
        self.timers.probes_sent = 0;
        if len > 0 {
            self.handle_data(start, data, now, received);
        }
        if segment.flags.fin && self.state.receives() && start + data <= self.rx.edge() {
            self.rx.finish(start + data);
            self.owed.now = true;
        }
        if self.rx.is_finished() && self.state.receives() {
            self.owed.now = true;
            self.apply(StateEvent::Fin, now);
        }
    }

    /// Protection against old segments (RFC 7323, 5).
    fn passes_stamps(&mut self, segment: &Segment, now: Time) -> bool {
        if !self.peer.timestamps || segment.flags.rst {
            return true;
        }
        let Some((value, _)) = segment.options.timestamps else {
            return false;
        };
        let is_valid = now.since(self.stamps.recent_at) < STAMP_LIFE;
        if is_valid && is_before(value, self.stamps.recent) {
            self.counters.too_old += 1;
            self.challenge(now);
            return false;
        }
        true
    }

    fn remember_stamp(&mut self, segment: &Segment, start: Offset, now: Time) {
        if let Some((value, _)) = segment.options.timestamps.filter(|_| self.peer.timestamps)
            && start <= self.stamps.last_ack
        {
            self.stamps.recent = value;
            self.stamps.recent_at = now;
        }
    }

    /// An acknowledgement for a segment outside the window. Without a limit, two sides that disagree would answer each other for ever.
    fn answer_unacceptable(&mut self, span: Offset, now: Time) {
        if span == 0 {
            self.challenge(now);
        } else {
            self.owed.now = true;
        }
        if self.state == State::TimeWait && span > 0 {
            self.timers.end = Some(now + self.config.time_wait);
        }
    }

    /// A challenge acknowledgement, if the limit admits one (RFC 5961, 7).
    fn challenge(&mut self, now: Time) {
        if self.challenges.admits(now) {
            self.counters.challenges += 1;
            self.owed.now = true;
        }
    }

    /// RFC 5961, 3.2: only a reset with the next sequence number counts.
    fn handle_reset(&mut self, start: Offset, now: Time) {
        if start == self.rx.next() {
            self.apply(StateEvent::Reset, now);
        } else {
            self.challenge(now);
        }
    }

    /// False if nothing else of the segment may be used.
    fn handle_ack(
        &mut self,
        segment: &Segment,
        wire: u32,
        start: Offset,
        span: Offset,
        now: Time,
    ) -> bool {
        let ack = self.ours.offset(wire, self.board.una());
        if !self.handshake.is_done {
            if ack != 0 {
                self.reset_for(segment.ack);
                return false;
            }
            self.syn_acknowledged(now);
            self.apply(StateEvent::AckOfSyn, now);
        }
        let oldest = self.board.una() - distance(self.peer.max_window);
        if ack > self.board.next() || ack < oldest {
            self.challenge(now);
            return false;
        }
        let flight = self.board.flight();
        let is_update = self.update_window(segment, start, ack);
        let blocks = self.blocks(segment);
        let news = Acknowledgement {
            ack,
            blocks: &blocks,
            echo: self.latest_echo(segment, now),
            now,
        };
        let progress = self.board.acknowledge(&news, &self.rtt);
        if progress.acked > 0 {
            self.duplicate_acks = 0;
            self.progress_at = now;
            self.rtt.reset_backoff();
        } else if ack == self.board.una() && span == 0 && !is_update && flight > 0 {
            self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        }
        if let Some(rtt) = progress.rtt {
            self.rtt.sample(rtt, now);
        }
        if progress.delivered > 0 {
            let size = usize::try_from(progress.longest).unwrap_or(usize::MAX);
            let packet = size.saturating_add(self.headers() + self.stamps_len());
            self.path.acknowledged(packet, self.board.una());
        }
        self.account_tail_probe(ack, &progress, blocks.is_empty());
        self.recover(flight, &progress, now);
        if self.board.is_empty() {
            self.timers.rto = None;
            self.timers.tail = None;
        } else if progress.acked > 0 {
            self.arm_rto(now);
            self.arm_tail_probe(now);
        }
        if self.is_fin_sent && self.board.una() > self.queue.end() {
            self.apply(StateEvent::AckOfFin, now);
        }
        true
    }

    /// Returns whether the window has changed.
    fn update_window(&mut self, segment: &Segment, start: Offset, ack: Offset) -> bool {
        let (by_start, by_ack) = self.peer.updated_by;
        if ack < self.board.una() || start < by_start || (start == by_start && ack < by_ack) {
            return false;
        }
        // The window of a SYN is not scaled, which acknowledges ours when both have opened at once.
        let shift = if segment.flags.syn {
            0
        } else {
            self.peer.shift
        };
        let window = u64::from(segment.window) << shift;
        let right = ack + distance(window);
        let has_changed = right != self.peer.right;
        self.peer.right = right;
        self.peer.max_window = self.peer.max_window.max(window);
        self.peer.updated_by = (start, ack);
        has_changed
    }

    fn blocks(&self, segment: &Segment) -> ArrayVec<Range, MAX_SACK_BLOCKS> {
        if !self.peer.sack {
            return ArrayVec::new();
        }
        let offset = |wire| self.ours.offset(wire, self.board.una());
        let blocks = segment.options.sacks.iter();
        blocks.map(|&(a, b)| (offset(a), offset(b))).collect()
    }

    /// The latest time at which a segment can have been sent whose timestamp is echoed.
    fn latest_echo(&self, segment: &Segment, now: Time) -> Option<Time> {
        let (_, echo) = segment
            .options
            .timestamps
            .filter(|_| self.peer.timestamps)?;
        let age = self.timestamp(now).wrapping_sub(echo);
        let tick = (now.nanos() / TICK).checked_sub(u64::from(age))?;
        Some(Time::from_nanos(
            tick.saturating_add(1).saturating_mul(TICK) - 1,
        ))
    }

    /// This side's clock as timestamps show it.
    pub(super) fn timestamp(&self, now: Time) -> u32 {
        ((now.nanos() / TICK) as u32).wrapping_add(self.stamps.offset)
    }

    /// RFC 8985, 7.4.2.
    fn account_tail_probe(&mut self, ack: Offset, progress: &Progress, without_blocks: bool) {
        let Some(probe) = self.tail_probe else { return };
        if ack < probe.end {
            return;
        }
        let is_duplicate = progress
            .duplicate
            .is_some_and(|(_, end)| end >= probe.end - 1);
        if !probe.is_retransmission || is_duplicate {
            self.tail_probe = None;
        } else if ack > probe.end {
            self.tail_probe = None;
            if self.recovery == Recovery::None {
                self.congestion
                    .repaired(self.board.flight() + progress.acked);
            }
        } else if progress.acked == 0 && without_blocks {
            self.tail_probe = None;
        }
    }

    /// Detects losses, and lets congestion control know.
    fn recover(&mut self, flight: u64, progress: &Progress, now: Time) {
        let una = self.board.una();
        if let Recovery::Fast(end) | Recovery::Timeout(end) = self.recovery
            && una >= end
        {
            self.congestion.exit_recovery();
            self.board.recovered();
            self.recovery = Recovery::None;
        }
        if self.board.is_reneged() {
            self.board.forget_blocks();
        }
        let in_recovery = self.recovery != Recovery::None;
        if self.peer.sack {
            self.timers.reordering = self.board.detect(now, &self.rtt, in_recovery);
        } else if self.duplicate_acks == DUPLICATE_ACKS && progress.acked == 0 && !in_recovery {
            self.board.lose_first();
        } else if in_recovery && progress.acked > 0 && !self.board.is_first_repeated() {
            // RFC 6582: in recovery, a partial acknowledgement shows the next loss.
            self.board.lose_first();
        }
        self.enter_recovery_if_lost(flight);
        match self.recovery {
            Recovery::Fast(_) => {
                let pipe = self.board.pipe();
                let advances = progress.acked > 0;
                self.congestion
                    .recovering(progress.delivered, pipe, advances);
            }
            _ if progress.acked > 0 && self.congestion.is_limited(flight) => {
                let growth = match self.recovery {
                    // RFC 3465, 2.3: after a timeout an acknowledgement may be of earlier transmissions.
                    Recovery::Timeout(_) => progress.acked.min(self.mss() as u64),
                    _ => progress.acked,
                };
                let rtt = self.rtt.smoothed().unwrap_or_default();
                self.congestion.acked(growth, now, rtt);
            }
            _ => {}
        }
    }

    /// One reduction for each window in which something is lost.
    pub(super) fn enter_recovery_if_lost(&mut self, flight: u64) {
        if self.recovery == Recovery::None && self.board.has_lost() {
            self.recovery = Recovery::Fast(self.board.next());
            self.congestion.enter_recovery(flight);
            self.timers.tail = None;
            self.tail_probe = None;
        }
    }

    fn handle_data(&mut self, start: Offset, len: Offset, now: Time, received: &mut Received) {
        if !self.state.receives() {
            return;
        }
        let before = self.rx.next();
        if self.is_released && start + len > before {
            // RFC 9293, 3.6.1: the data cannot be delivered, and the peer must know.
            self.abort();
            return;
        }
        let had_ranges = self.rx.has_ranges();
        let runs = self.rx.accept(start, start + len);
        for (from, to) in runs {
            let place = |at: Offset| usize::try_from(at - start).unwrap_or(0);
            let run = Run {
                offset: stream_offset(from),
                payload: place(from)..place(to),
            };
            received.runs.push(run);
        }
        let is_plain = self.rx.next() > before && !had_ranges && start >= before;
        self.owe(is_plain, now);
    }

    /// An acknowledgement is owed: at once, or after a second segment or a while (RFC 5681, 4.2).
    fn owe(&mut self, is_plain: bool, now: Time) {
        self.owed.segments += 1;
        if !is_plain || self.owed.segments >= 2 {
            self.owed.now = true;
        } else if self.timers.delayed_ack.is_none() {
            self.timers.delayed_ack = Some(now + self.config.delayed_ack);
        }
    }

    /// A SYN for a connection in `TimeWait` may open a new one (RFC 9293, 3.10.7.4; RFC 6191).
    pub fn may_be_reused(&self, syn: &Segment) -> bool {
        let is_plain = syn.flags.syn && syn.ack.is_none() && !syn.flags.rst;
        if self.state != State::TimeWait || !is_plain {
            return false;
        }
        match syn.options.timestamps.filter(|_| self.peer.timestamps) {
            Some((value, _)) if value != self.stamps.recent => is_before(self.stamps.recent, value),
            _ => self.theirs.offset(syn.seq, self.rx.next()) > self.rx.next(),
        }
    }

    /// The sequence number of the SYN.
    pub const fn initial_sequence(&self) -> u32 {
        self.ours.initial()
    }

    /// The sequence number that a connection which replaces this one must be beyond.
    pub fn last_sequence(&self) -> u32 {
        self.ours.wire(self.board.next())
    }
}
