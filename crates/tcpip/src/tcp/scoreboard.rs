//! The segments that are sent and not acknowledged, and which of them are lost (RACK, RFC 8985, and the scoreboard of RFC 6675).
//! A segment keeps its boundaries until it is acknowledged as a whole. `pipe` is the number of bytes that are believed to be in the
//! network: sent, and neither acknowledged in any way nor marked lost.

use core::time::Duration;
use std::collections::VecDeque;

use verbena_stream::Time;

use super::receiver::Range;
use super::rtt::Rtt;
use super::seq::Offset;

/// Segments in flight; no new data is sent beyond.
pub const MAX_SEGMENTS_IN_FLIGHT: usize = 16_384;
/// Segments that arrived behind a missing one before it is taken for lost (RFC 8985, 6.2.4).
const DUP_THRESHOLD: usize = 3;
/// Recoveries for which a wider reordering window lasts.
const WINDOW_PERSISTS: u32 = 16;
/// The reordering window is at most this many quarters of the least round-trip time.
const MAX_WINDOW_QUARTERS: u32 = 64;

#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) start: Offset,
    /// Includes the FIN.
    pub(crate) end: Offset,
    pub(crate) fin: bool,
    pub(crate) at: Time,
    pub(crate) retransmitted: bool,
    sacked: bool,
    lost: bool,
}

impl Sent {
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.end - self.start).unwrap_or(0)
    }

    fn in_pipe(&self) -> bool {
        !self.sacked && !self.lost
    }
}

/// What an acknowledgement says.
#[derive(Debug)]
pub(crate) struct Acknowledgement<'a> {
    pub(crate) ack: Offset,
    pub(crate) blocks: &'a [Range],
    /// The latest time of sending that the echoed timestamp allows; `None` without timestamps.
    pub(crate) echo: Option<Time>,
    pub(crate) now: Time,
}

/// What an acknowledgement has changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Bytes by which the left edge moved.
    pub(crate) acked: u64,
    /// Bytes that are newly acknowledged in any way.
    pub(crate) delivered: u64,
    /// The round-trip time of the newest segment among them that was sent once.
    pub(crate) rtt: Option<Duration>,
    /// A block reported a duplicate.
    pub(crate) duplicate: Option<Range>,
    /// The longest segment among them.
    pub(crate) longest: u64,
}

#[derive(Debug, Clone)]
struct Rack {
    at: Time,
    end: Offset,
    rtt: Duration,
    /// The highest offset that is acknowledged in any way.
    forward: Offset,
    reordering_seen: bool,
    quarters: u32,
    persists: u32,
    round: Option<Offset>,
}

#[derive(Debug, Clone)]
pub(crate) struct Scoreboard {
    una: Offset,
    next: Offset,
    sent: VecDeque<Sent>,
    pipe: u64,
    sacked: usize,
    lost: usize,
    retransmitted: usize,
    rack: Rack,
}

impl Scoreboard {
    pub(crate) fn new() -> Scoreboard {
        Scoreboard {
            una: 0,
            next: 0,
            sent: VecDeque::new(),
            pipe: 0,
            sacked: 0,
            lost: 0,
            retransmitted: 0,
            rack: Rack {
                at: Time::ZERO,
                end: 0,
                rtt: Duration::ZERO,
                forward: 0,
                reordering_seen: false,
                quarters: 1,
                persists: 0,
                round: None,
            },
        }
    }

    pub(crate) const fn una(&self) -> Offset {
        self.una
    }

    pub(crate) const fn next(&self) -> Offset {
        self.next
    }

    pub(crate) const fn pipe(&self) -> u64 {
        self.pipe
    }

    /// Bytes that are not acknowledged by the left edge.
    pub(crate) fn flight(&self) -> u64 {
        u64::try_from(self.next - self.una).unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.sent.len() >= MAX_SEGMENTS_IN_FLIGHT
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) const fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Before this offset, no segment can be sent again.
    pub(crate) fn released(&self) -> Offset {
        self.sent
            .front()
            .map_or(self.una, |first| first.start.min(self.una))
    }

    /// A new segment is sent.
    pub(crate) fn push(&mut self, end: Offset, fin: bool, now: Time) {
        let sent = Sent {
            start: self.next,
            end,
            fin,
            at: now,
            retransmitted: false,
            sacked: false,
            lost: false,
        };
        self.pipe += sent.len();
        self.next = end;
        self.sent.push_back(sent);
    }

    /// The first lost segment.
    pub(crate) fn first_lost(&self) -> Option<(usize, &Sent)> {
        if self.lost == 0 {
            return None;
        }
        self.sent.iter().enumerate().find(|(_, sent)| sent.lost)
    }

    /// The last segment, for a tail loss probe.
    pub(crate) fn last(&self) -> Option<(usize, &Sent)> {
        self.sent.back().map(|sent| (self.sent.len() - 1, sent))
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
        self.sent.get(index)
    }

    /// Segments with more data than this do not arrive.
    pub(crate) fn lose_long(&mut self, longest: usize) {
        let is_long = |sent: &Sent| sent.len() - u64::from(sent.fin) > longest as u64;
        for sent in self.sent.iter_mut().filter(|s| s.in_pipe() && is_long(s)) {
            sent.lost = true;
            self.lost += 1;
            self.pipe -= sent.len();
        }
    }

    /// Cuts a lost segment that the path no longer carries; its rest is lost too.
    pub(crate) fn split(&mut self, index: usize, at: Offset) {
        let Some(sent) = self.sent.get_mut(index) else {
            return;
        };
        let data_end = sent.end - Offset::from(sent.fin);
        if at <= sent.start || at >= data_end {
            return;
        }
        let mut rest = sent.clone();
        sent.end = at;
        sent.fin = false;
        rest.start = at;
        self.lost += usize::from(rest.lost);
        self.retransmitted += usize::from(rest.retransmitted);
        self.sent.insert(index + 1, rest);
    }

    /// A segment is sent again.
    pub(crate) fn resend(&mut self, index: usize, now: Time) {
        if let Some(sent) = self.sent.get_mut(index) {
            if sent.lost {
                self.pipe += sent.len();
                self.lost -= 1;
            }
            self.retransmitted += usize::from(!sent.retransmitted);
            sent.lost = false;
            sent.retransmitted = true;
            sent.at = now;
        }
    }

    /// Takes an acknowledgement in, which must not be beyond `next`.
    pub(crate) fn acknowledge(&mut self, news: &Acknowledgement<'_>, rtt: &Rtt) -> Progress {
        let mut progress = Progress::default();
        let ack = news.ack.min(self.next);
        let mut newest: Option<(Time, Duration)> = None;
        // What waited behind a hole says nothing about the path.
        let mut fills_hole = false;
        let mut sample = |sent: &Sent| {
            if !sent.retransmitted && newest.is_none_or(|(at, _)| sent.at >= at) {
                newest = Some((sent.at, news.now.since(sent.at)));
            }
        };
        if ack > self.una {
            progress.acked = u64::try_from(ack - self.una).unwrap_or(0);
            self.una = ack;
        }
        while self.sent.front().is_some_and(|first| first.end <= ack) {
            let Some(sent) = self.sent.pop_front() else {
                break;
            };
            if sent.sacked {
                self.sacked -= 1;
            } else {
                progress.delivered += sent.len();
                progress.longest = progress.longest.max(sent.len());
                sample(&sent);
                self.rack.update(&sent, news, news.echo, rtt);
            }
            if sent.in_pipe() {
                self.pipe -= sent.len();
            }
            self.lost -= usize::from(sent.lost);
            self.retransmitted -= usize::from(sent.retransmitted);
            fills_hole |= sent.retransmitted;
        }
        for (index, &(start, end)) in news.blocks.iter().enumerate() {
            let within_second = news
                .blocks
                .get(1)
                .is_some_and(|second| start >= second.0 && end <= second.1);
            if index == 0 && start < end && (end <= ack || within_second) {
                progress.duplicate = Some((start, end));
                continue;
            }
            if start >= end || end > self.next {
                continue;
            }
            let first = self.sent.partition_point(|sent| sent.start < start);
            for sent in self.sent.range_mut(first..) {
                if sent.end > end {
                    break;
                }
                if sent.sacked {
                    continue;
                }
                progress.delivered += sent.len();
                progress.longest = progress.longest.max(sent.len());
                sample(sent);
                // The timestamp echoed with a block is of the segment before the hole (RFC 7323, 4.3).
                self.rack.update(sent, news, None, rtt);
                if sent.lost {
                    self.lost -= 1;
                } else {
                    self.pipe -= sent.len();
                }
                sent.sacked = true;
                sent.lost = false;
                self.sacked += 1;
            }
        }
        progress.rtt = newest.filter(|_| !fills_hole).map(|(_, rtt)| rtt);
        if progress.duplicate.is_some() {
            self.rack.saw_duplicate(self.una, self.next);
        }
        progress
    }

    /// The left edge is within what was acknowledged selectively: the peer has thrown data away (RFC 2018, 8).
    pub(crate) fn is_reneged(&self) -> bool {
        self.sent.front().is_some_and(|first| first.sacked)
    }

    /// Believes no selective acknowledgement.
    pub(crate) fn forget_blocks(&mut self) {
        for sent in self.sent.iter_mut().filter(|sent| sent.sacked) {
            sent.sacked = false;
            sent.lost = true;
            self.lost += 1;
        }
        self.sacked = 0;
    }

    /// Marks segments as lost that were sent long enough before one that arrived (RFC 8985, 6.2); when to look again.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt, in_recovery: bool) -> Option<Time> {
        if self.sacked == 0 && self.retransmitted == 0 {
            return None;
        }
        let window = self.reordering_window(rtt, in_recovery);
        let (rack, mut again) = (&self.rack, None::<Time>);
        for sent in self.sent.iter_mut().filter(|sent| sent.in_pipe()) {
            if !is_after((rack.at, rack.end), (sent.at, sent.end)) {
                // Without retransmissions, the rest was sent later.
                if self.retransmitted == 0 {
                    break;
                }
                continue;
            }
            let expires = sent.at + rack.rtt + window;
            if expires <= now {
                sent.lost = true;
                self.lost += 1;
                self.pipe -= sent.len();
            } else {
                again = Some(again.map_or(expires, |at| at.max(expires)));
            }
        }
        again
    }

    fn reordering_window(&self, rtt: &Rtt, in_recovery: bool) -> Duration {
        let rack = &self.rack;
        if !rack.reordering_seen && (in_recovery || self.sacked >= DUP_THRESHOLD) {
            return Duration::ZERO;
        }
        let window = rtt.least().unwrap_or_default() / 4 * rack.quarters;
        window.min(rtt.smoothed().unwrap_or_default())
    }

    /// A recovery has ended.
    pub(crate) fn recovered(&mut self) {
        let rack = &mut self.rack;
        rack.persists = rack.persists.saturating_sub(1);
        if rack.persists == 0 {
            rack.quarters = 1;
        }
    }

    /// The first segment was sent more than once.
    pub(crate) fn is_first_repeated(&self) -> bool {
        self.sent.front().is_some_and(|first| first.retransmitted)
    }

    /// The first segment is lost, if it is in the network.
    pub(crate) fn lose_first(&mut self) {
        if let Some(first) = self.sent.front_mut().filter(|first| first.in_pipe()) {
            first.lost = true;
            self.lost += 1;
            self.pipe -= first.len();
        }
    }

    /// A retransmission timeout: what is lost by then (RFC 8985, 6.3).
    pub(crate) fn time_out(&mut self, now: Time, rtt: &Rtt) {
        if self.is_reneged() {
            self.forget_blocks();
        }
        self.lose_first();
        let window = self.reordering_window(rtt, true);
        let age = self.rack.rtt + window;
        for sent in self.sent.iter_mut().filter(|sent| sent.in_pipe()) {
            if sent.at + age <= now {
                sent.lost = true;
                self.lost += 1;
                self.pipe -= sent.len();
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn assert_invariants(&self) {
        let count = |is: fn(&&Sent) -> bool| self.sent.iter().filter(is).count();
        assert_eq!(self.sacked, count(|sent| sent.sacked));
        assert_eq!(self.lost, count(|sent| sent.lost));
        assert_eq!(self.retransmitted, count(|sent| sent.retransmitted));
        let pipe: u64 = self
            .sent
            .iter()
            .filter(|s| s.in_pipe())
            .map(Sent::len)
            .sum();
        assert_eq!(self.pipe, pipe);
        let mut at = self.sent.front().map_or(self.next, |first| first.start);
        assert!(at <= self.una && self.una <= self.next);
        for sent in &self.sent {
            assert!(sent.start == at && sent.end > at);
            assert!(!(sent.sacked && sent.lost));
            at = sent.end;
        }
        assert_eq!(at, self.next);
    }
}

impl Rack {
    /// A segment has arrived (RFC 8985, 6.2, steps 2 and 3).
    fn update(&mut self, sent: &Sent, news: &Acknowledgement<'_>, echo: Option<Time>, rtt: &Rtt) {
        if sent.end > self.forward {
            self.forward = sent.end;
        } else if sent.end < self.forward && !sent.retransmitted {
            self.reordering_seen = true;
        }
        let took = news.now.since(sent.at);
        if sent.retransmitted {
            // The acknowledgement may be of the first transmission.
            let is_early = echo.is_some_and(|latest| latest < sent.at);
            if is_early || rtt.least().is_some_and(|least| took < least) {
                return;
            }
        }
        self.rtt = took;
        if is_after((sent.at, sent.end), (self.at, self.end)) {
            (self.at, self.end) = (sent.at, sent.end);
        }
    }

    /// A retransmission was not needed: the window for reordering gets wider, once in a round trip (step 4).
    fn saw_duplicate(&mut self, una: Offset, next: Offset) {
        if self.round.is_some_and(|round| una < round) {
            return;
        }
        self.round = Some(next);
        self.quarters = (self.quarters + 1).min(MAX_WINDOW_QUARTERS);
        self.persists = WINDOW_PERSISTS;
    }
}

/// Whether one segment was sent after another; those sent at once are ordered by their ends.
fn is_after(a: (Time, Offset), b: (Time, Offset)) -> bool {
    a > b
}
