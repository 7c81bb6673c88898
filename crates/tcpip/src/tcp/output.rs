//! The next segment to send: what is lost first, then new data, then probes, then an acknowledgement.
//! Data is sent only within the peer's window and the congestion window; the exceptions are one probe at a time.

use verbena_stream::Time;

use super::queue::{Framing, Next};
use super::receiver::Range;
use super::scoreboard::Sent;
use super::segment::MAX_SACK_BLOCKS;
use super::seq::{Offset, SYN, distance, stream_offset};
use super::{Connection, Recovery, Segment, State, TailProbe, Transmit};

impl Connection {
    /// The next segment to send, until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let next = self.next_transmit(now);
        if next.is_some() {
            self.counters.segments_out += 1;
        } else {
            self.arm_idle_timers(now);
        }
        next
    }

    fn next_transmit(&mut self, now: Time) -> Option<Transmit> {
        if let Some(segment) = self.reply.take() {
            return Some(Transmit {
                segment,
                payload: 0..0,
            });
        }
        match self.state {
            State::Closed => None,
            State::SynSent | State::SynReceived => self.transmit_syn(now),
            _ => self
                .retransmit(now)
                .or_else(|| self.transmit_data(now))
                .or_else(|| self.transmit_tail_probe(now))
                .or_else(|| self.transmit_probe(now))
                .or_else(|| self.transmit_ack(now)),
        }
    }

    fn transmit_syn(&mut self, now: Time) -> Option<Transmit> {
        let is_answer = self.state == State::SynReceived;
        if !self.handshake.is_due {
            return if is_answer {
                self.transmit_ack(now)
            } else {
                None
            };
        }
        self.handshake.is_due = false;
        self.handshake.retransmitted |= self.handshake.sent_at.is_some();
        self.handshake.sent_at = Some(now);
        self.arm_rto(now);
        let mss = self.local_mss();
        let mut segment = self.plain(self.ours.initial());
        segment.flags.syn = true;
        segment.window = self.rx.window(mss, true);
        let options = &mut segment.options;
        options.mss = u16::try_from(mss).ok();
        // An answer has only what the peer has offered (RFC 7323, 1.3).
        let shift = self.rx.shift();
        let is_scaled = self.config.window_scaling;
        options.window_scale = (is_scaled && !(is_answer && self.is_unscaled)).then_some(shift);
        options.sack_permitted = if is_answer {
            self.peer.sack
        } else {
            self.config.sack
        };
        let stamped = if is_answer {
            self.peer.timestamps
        } else {
            self.config.timestamps
        };
        if is_answer {
            segment.ack = Some(self.theirs.wire(self.rx.next()));
            self.acknowledged(true);
        }
        if stamped {
            let echo = if is_answer { self.stamps.recent } else { 0 };
            segment.options.timestamps = Some((self.timestamp(now), echo));
        }
        Some(Transmit {
            segment,
            payload: 0..0,
        })
    }

    /// A header with an acknowledgement and the window, and with blocks where they fit.
    fn header(&mut self, at: Offset, with_blocks: bool, now: Time) -> Segment {
        let mut segment = self.plain(self.ours.wire(at));
        segment.ack = Some(self.theirs.wire(self.rx.next()));
        segment.window = self.rx.window(self.local_mss(), false);
        if self.peer.timestamps {
            segment.options.timestamps = Some((self.timestamp(now), self.stamps.recent));
        }
        if with_blocks && self.peer.sack {
            let most = MAX_SACK_BLOCKS - usize::from(self.peer.timestamps);
            let wire = |(from, to): Range| (self.theirs.wire(from), self.theirs.wire(to));
            segment.options.sacks = self.rx.blocks(most).into_iter().map(wire).collect();
        }
        self.acknowledged(with_blocks);
        segment
    }

    /// An acknowledgement is about to be sent. Blocks that are owed need a segment of their own.
    fn acknowledged(&mut self, with_blocks: bool) {
        let owes_blocks = self.peer.sack && (self.rx.has_ranges() || self.rx.has_duplicate());
        if with_blocks || !owes_blocks {
            self.owed.now = false;
        }
        self.owed.segments = 0;
        self.timers.delayed_ack = None;
        self.stamps.last_ack = self.rx.next();
    }

    fn data(&mut self, from: Offset, to: Offset, fin: bool, is_end: bool, now: Time) -> Transmit {
        let mut segment = self.header(from, false, now);
        segment.flags.fin = fin;
        segment.flags.psh = is_end;
        let until = to - Offset::from(fin);
        Transmit {
            segment,
            payload: stream_offset(from)..stream_offset(until),
        }
    }

    /// The first lost segment, if the congestion window admits it.
    fn retransmit(&mut self, now: Time) -> Option<Transmit> {
        let (index, sent) = self.board.first_lost()?;
        let longest = self.mss();
        let (from, len, is_fin) = (sent.start, sent.len(), sent.fin);
        let pipe = self.board.pipe();
        let is_beyond = index > 0 && from >= self.peer.right;
        if is_beyond || (pipe > 0 && pipe + len > self.congestion.window()) {
            return None;
        }
        if len - u64::from(is_fin) > longest as u64 {
            self.board.split(index, from + distance(longest as u64));
        }
        self.resend(index, now)
    }

    fn resend(&mut self, index: usize, now: Time) -> Option<Transmit> {
        self.board.resend(index, now);
        let Sent {
            start, end, fin, ..
        } = *self.board.get(index)?;
        self.congestion.sent(stream_offset(end - start));
        self.counters.retransmitted += 1;
        self.sent_at = now;
        if self.timers.rto.is_none() {
            self.arm_rto(now);
        }
        Some(self.data(start, end, fin, true, now))
    }

    /// New data, or the FIN.
    fn transmit_data(&mut self, now: Time) -> Option<Transmit> {
        if !self.state.transmits() || self.is_fin_sent || self.board.is_full() {
            return None;
        }
        let is_probe = self.timers.tail_due;
        if self.board.has_lost() && !is_probe {
            return None;
        }
        self.restart_after_idle(now);
        let at = self.board.next();
        let room = self.peer.right - at;
        let next = self.queue.next(at, self.mss());
        let (end, is_end) = match next {
            Some(next) => (self.fit(at, next, room)?, next.is_end),
            None if self.queue.is_finished() && room > 0 => (at, false),
            None => return None,
        };
        let is_last = end == self.queue.end();
        let fin = is_last && self.queue.is_finished() && room > end - at;
        let len = stream_offset(end - at) + u64::from(fin);
        let pipe = self.board.pipe();
        if pipe > 0 && pipe + len > self.congestion.window() && !is_probe {
            return None;
        }
        if is_probe {
            self.tail_probed(end + Offset::from(fin), false);
        }
        self.timers.window_due = false;
        self.timers.window = None;
        self.timers.window_count = 0;
        if self.board.is_empty() {
            self.progress_at = now;
        }
        self.queue.sent(end);
        let end = end + Offset::from(fin);
        self.board.push(end, fin, now);
        self.is_fin_sent |= fin;
        self.congestion.sent(len);
        self.sent_at = now;
        if self.timers.rto.is_none() {
            self.arm_rto(now);
        }
        if !is_probe {
            self.arm_tail_probe(now);
        }
        Some(self.data(at, end, fin, is_end, now))
    }

    /// The end of a segment within the peer's window, if it is worth sending (RFC 9293, 3.8.6.2.1).
    fn fit(&self, at: Offset, next: Next, room: Offset) -> Option<Offset> {
        let is_due = self.timers.window_due;
        if self.queue.framing() == Framing::Messages {
            let fits = next.end - at <= room;
            let cut = (is_due && room > 0).then_some(at + room);
            return if fits { Some(next.end) } else { cut };
        }
        let end = next.end.min(at + room);
        let len = end - at;
        if len <= 0 {
            return None;
        }
        let is_full = len >= distance(self.mss() as u64);
        let is_all = end == self.queue.end();
        let waits = self.config.nagle && !self.board.is_empty() && !self.queue.is_finished();
        let is_large = stream_offset(len) >= self.peer.max_window / 2;
        (is_full || (is_all && !waits) || (is_large && !is_all) || is_due).then_some(end)
    }

    fn restart_after_idle(&mut self, now: Time) {
        if self.board.is_empty() && now.since(self.sent_at) > self.rtt.rto() {
            self.congestion.idle();
            self.sent_at = now;
        }
    }

    /// The last segment again, where no new data could be sent (RFC 8985, 7.3).
    fn transmit_tail_probe(&mut self, now: Time) -> Option<Transmit> {
        if !self.timers.tail_due {
            return None;
        }
        self.timers.tail_due = false;
        let (index, last) = self.board.last()?;
        let end = last.end;
        let sent = self.resend(index, now);
        self.tail_probed(end, true);
        self.arm_rto(now);
        sent
    }

    fn tail_probed(&mut self, end: Offset, is_retransmission: bool) {
        self.timers.tail_due = false;
        self.counters.tail_probes += 1;
        self.tail_probe = Some(TailProbe {
            end,
            is_retransmission,
        });
    }

    /// A segment before the peer's window, which it must answer: for a closed window and an idle connection.
    fn transmit_probe(&mut self, now: Time) -> Option<Transmit> {
        let is_due = self.timers.probe_due || self.timers.window_due;
        self.timers.probe_due = false;
        self.timers.window_due = false;
        if !is_due {
            return None;
        }
        self.counters.probes += 1;
        let at = (self.board.una() - 1).max(SYN);
        let segment = self.header(at, true, now);
        Some(Transmit {
            segment,
            payload: 0..0,
        })
    }

    fn transmit_ack(&mut self, now: Time) -> Option<Transmit> {
        if !self.owed.now {
            return None;
        }
        let segment = self.header(self.board.next(), true, now);
        Some(Transmit {
            segment,
            payload: 0..0,
        })
    }

    /// Whether loss recovery or a probe is going on, which excludes a tail loss probe.
    pub(super) fn excludes_tail_probe(&self) -> bool {
        !self.peer.sack
            || self.recovery != Recovery::None
            || self.board.has_sacked()
            || self.tail_probe.is_some()
            || self.board.is_empty()
    }

    /// Data or a FIN is queued that could not be sent.
    pub(super) fn is_waiting(&self) -> bool {
        let has_data = self.board.next() < self.queue.end();
        let owes_fin = self.queue.is_finished() && !self.is_fin_sent;
        self.state.transmits() && (has_data || owes_fin)
    }
}
