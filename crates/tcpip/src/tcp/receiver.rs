//! What has arrived of the peer's data: the left edge, ranges beyond it, the window that was promised, and selective acknowledgements.
//! No byte is held here; a segment is answered with the parts of it that are new, each exactly once. What was accepted stays accepted:
//! a range is acknowledged only after it was handed up, the promised edge never moves back, and the number of ranges is limited.

use arrayvec::ArrayVec;

use super::segment::{MAX_SACK_BLOCKS, MAX_WINDOW_SHIFT};
use super::seq::{Offset, SYN, distance};

/// Ranges beyond the left edge; a segment that would need another one is dropped.
pub const MAX_RANGES: usize = 64;
/// New parts of one segment; what is behind them is dropped.
pub const MAX_RUNS: usize = 4;
/// The largest receive window.
pub const MAX_RECEIVE_WINDOW: u64 = 65535 << MAX_WINDOW_SHIFT;

/// A range of offsets, its end excluded.
pub(crate) type Range = (Offset, Offset);

#[derive(Debug, Clone)]
struct Held {
    start: Offset,
    end: Offset,
    /// Larger if a segment was added later.
    stamp: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    next: Offset,
    /// The right edge of the largest window that was promised.
    edge: Offset,
    capacity: Offset,
    consumed: Offset,
    shift: u8,
    held: ArrayVec<Held, MAX_RANGES>,
    fin: Option<Offset>,
    duplicate: Option<Range>,
    stamp: u64,
    refused: u64,
}

impl Receiver {
    pub(crate) fn new(capacity: u64) -> Receiver {
        let capacity = capacity.clamp(1, MAX_RECEIVE_WINDOW);
        let mut shift = 0;
        while capacity >> shift > 65535 {
            shift += 1;
        }
        Receiver {
            next: SYN,
            edge: SYN,
            capacity: distance(capacity),
            consumed: 0,
            shift,
            held: ArrayVec::new(),
            fin: None,
            duplicate: None,
            stamp: 0,
            refused: 0,
        }
    }

    /// The shift to offer, or in use.
    pub(crate) const fn shift(&self) -> u8 {
        self.shift
    }

    /// The peer does not scale windows.
    pub(crate) fn without_scaling(&mut self) {
        self.shift = 0;
        self.capacity = self.capacity.min(65535);
    }

    /// The peer's SYN has arrived.
    pub(crate) fn synchronize(&mut self) {
        self.next = 0;
        self.edge = 0;
    }

    pub(crate) const fn next(&self) -> Offset {
        self.next
    }

    pub(crate) const fn edge(&self) -> Offset {
        self.edge
    }

    /// Where the contiguous data ends; a FIN is not counted.
    pub(crate) fn in_order(&self) -> Offset {
        let data = self.fin.map_or(self.next, |fin| self.next.min(fin));
        data.max(0)
    }

    /// All data and the FIN have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    pub(crate) fn has_ranges(&self) -> bool {
        !self.held.is_empty()
    }

    pub(crate) const fn has_duplicate(&self) -> bool {
        self.duplicate.is_some()
    }

    /// Segments that were dropped for want of ranges.
    #[cfg(test)]
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether a segment is acceptable (RFC 9293, 3.10.7.4), by the largest window that was promised. One without data may also be at
    /// the right edge: the acknowledgements of a peer that has filled the window are there.
    pub(crate) fn is_acceptable(&self, start: Offset, len: Offset) -> bool {
        if len == 0 {
            return self.next <= start && start <= self.edge;
        }
        start < self.edge && start + len > self.next
    }

    /// Takes a segment's data in, and returns the parts of it that are new.
    pub(crate) fn accept(&mut self, start: Offset, end: Offset) -> ArrayVec<Range, MAX_RUNS> {
        let mut runs = ArrayVec::new();
        if start < self.next && start < end {
            self.duplicate = Some((start.max(0), end.min(self.next)));
        }
        let limit = self.fin.map_or(self.edge, |fin| self.edge.min(fin));
        let (start, mut end) = (start.max(self.next), end.min(limit));
        if start >= end {
            return runs;
        }
        // The ranges that the segment overlaps or touches.
        let first = self.held.partition_point(|held| held.end < start);
        let mut at = start;
        let mut behind = first;
        for held in self.held.iter().skip(first) {
            if held.start > end {
                break;
            }
            if at < held.start && at < end {
                if runs.is_full() {
                    end = at;
                    break;
                }
                runs.push((at, held.start.min(end)));
            }
            at = at.max(held.end);
            behind += 1;
        }
        if at < end && runs.try_push((at, end)).is_err() {
            end = at;
        }
        if runs.is_empty() {
            self.duplicate = Some((start, end));
            if let Some(held) = self.held.get_mut(first) {
                self.stamp += 1;
                held.stamp = self.stamp;
            }
            return runs;
        }
        let is_new = first == behind;
        if is_new && start > self.next && self.held.is_full() {
            self.refused += 1;
            runs.clear();
            return runs;
        }
        self.merge(first, behind, start, end);
        runs
    }

    fn merge(&mut self, first: usize, behind: usize, start: Offset, end: Offset) {
        let merged = self.held.drain(first..behind).fold((start, end), |sum, h| {
            (sum.0.min(h.start), sum.1.max(h.end))
        });
        if merged.0 <= self.next {
            self.next = merged.1;
            self.reach_fin();
            return;
        }
        self.stamp += 1;
        let held = Held {
            start: merged.0,
            end: merged.1,
            stamp: self.stamp,
        };
        // There is room: a range was removed, or the caller checked.
        if self.held.try_insert(first, held).is_err() {
            self.refused += 1;
        }
    }

    /// The FIN is at an offset, in the window and behind all data; a different one is ignored.
    pub(crate) fn finish(&mut self, at: Offset) {
        let behind = self.held.last().map_or(self.next, |held| held.end);
        if self.fin.is_none() && at >= behind {
            self.fin = Some(at);
            self.reach_fin();
        }
    }

    fn reach_fin(&mut self) {
        if self.fin == Some(self.next) {
            self.next += 1;
        }
    }

    /// The consumer has taken bytes and can take as many more.
    pub(crate) fn consume(&mut self, len: u64) {
        let consumed = self.consumed.saturating_add(distance(len));
        self.consumed = consumed.min(self.in_order());
    }

    /// How far the window can grow.
    fn growth(&self) -> Offset {
        self.consumed + self.capacity - self.edge
    }

    /// The window opened so far that the peer should be told (RFC 9293, 3.8.6.2.2).
    pub(crate) fn wants_update(&self, mss: usize) -> bool {
        let mss = distance(mss as u64);
        let growth = self.growth();
        let small = mss.min(self.capacity / 2).max(1);
        growth >= self.capacity.div_euclid(2).max(1)
            || (self.edge - self.next < mss && growth >= small)
    }

    /// The window for a segment that is sent now.
    pub(crate) fn window(&mut self, mss: usize, is_syn: bool) -> u16 {
        let shift = if is_syn { 0 } else { self.shift };
        let small = distance(mss as u64).min(self.capacity / 2).max(1);
        let mut edge = self.edge;
        if self.growth() >= small {
            edge = self.consumed + self.capacity;
        }
        let room = (edge - self.next).max(0) >> shift;
        let window = u16::try_from(room).unwrap_or(u16::MAX);
        self.edge = self.edge.max(self.next + (Offset::from(window) << shift));
        window
    }

    /// The blocks for an acknowledgement: a duplicate first (RFC 2883), then the newest ranges (RFC 2018, 4).
    pub(crate) fn blocks(&mut self, most: usize) -> ArrayVec<Range, MAX_SACK_BLOCKS> {
        let mut out = ArrayVec::new();
        let most = most.min(MAX_SACK_BLOCKS);
        if most == 0 {
            return out;
        }
        out.extend(self.duplicate.take());
        let mut before = u64::MAX;
        while out.len() < most {
            let older = self.held.iter().filter(|held| held.stamp < before);
            let Some(newest) = older.max_by_key(|held| held.stamp) else {
                break;
            };
            before = newest.stamp;
            out.push((newest.start, newest.end));
        }
        out
    }

    #[cfg(test)]
    pub(crate) fn assert_invariants(&self) {
        assert!(self.consumed <= self.in_order());
        let mut before = self.next;
        for held in &self.held {
            assert!(before < held.start && held.start < held.end && held.end <= self.edge);
            before = held.end;
        }
        assert!(self.edge <= self.consumed + self.capacity + (1 << self.shift));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(capacity: u64) -> Receiver {
        let mut receiver = Receiver::new(capacity);
        receiver.synchronize();
        receiver.window(10, false);
        receiver
    }

    fn runs(receiver: &mut Receiver, start: Offset, end: Offset) -> Vec<Range> {
        let runs = receiver.accept(start, end).to_vec();
        receiver.assert_invariants();
        runs
    }

    #[test]
    fn every_byte_is_new_once() {
        let mut rx = receiver(1000);
        assert_eq!(runs(&mut rx, 20, 30), [(20, 30)]);
        assert_eq!(runs(&mut rx, 40, 50), [(40, 50)]);
        assert_eq!(runs(&mut rx, 15, 60), [(15, 20), (30, 40), (50, 60)]);
        assert_eq!(runs(&mut rx, 20, 45), []);
        assert_eq!(rx.in_order(), 0);
        assert_eq!(runs(&mut rx, 0, 16), [(0, 15)]);
        assert_eq!(rx.in_order(), 60);
        assert_eq!(runs(&mut rx, 0, 60), []);
    }

    #[test]
    fn newest_range_is_reported_first() {
        let mut rx = receiver(1000);
        for start in [20, 40, 60, 80, 100] {
            rx.accept(start, start + 10);
        }
        assert_eq!(rx.blocks(3).to_vec(), [(100, 110), (80, 90), (60, 70)]);
        rx.accept(30, 40);
        rx.accept(60, 65);
        let blocks = rx.blocks(4).to_vec();
        assert_eq!(blocks, [(60, 65), (60, 70), (20, 50), (100, 110)]);
        assert_eq!(rx.blocks(1).len(), 1);
    }

    #[test]
    fn ranges_are_limited() {
        let mut rx = receiver(60_000);
        for at in 1..=MAX_RANGES as Offset {
            assert_eq!(runs(&mut rx, at * 10, at * 10 + 5).len(), 1);
        }
        assert_eq!(runs(&mut rx, 50_000, 50_001), []);
        assert_eq!(rx.refused(), 1);
        // What is next is always taken, and so is what joins ranges.
        assert_eq!(runs(&mut rx, 15, 20), [(15, 20)]);
        assert_eq!(runs(&mut rx, 0, 10), [(0, 10)]);
        assert_eq!(rx.in_order(), 25);
    }

    #[test]
    fn parts_of_one_segment_are_limited() {
        let mut rx = receiver(60_000);
        for at in 1..=6 {
            rx.accept(at * 10, at * 10 + 5);
        }
        let parts = runs(&mut rx, 0, 100);
        assert_eq!(parts, [(0, 10), (15, 20), (25, 30), (35, 40)]);
        assert_eq!(rx.in_order(), 45);
        assert_eq!(runs(&mut rx, 0, 100), [(45, 50), (55, 60), (65, 100)]);
    }

    #[test]
    fn data_outside_the_window_is_cut() {
        let mut rx = receiver(100);
        assert_eq!(runs(&mut rx, 90, 200), [(90, 100)]);
        assert!(rx.is_acceptable(0, 0) && rx.is_acceptable(99, 5));
        assert!(rx.is_acceptable(100, 0) && !rx.is_acceptable(101, 0));
        assert!(!rx.is_acceptable(100, 1) && !rx.is_acceptable(-5, 5));
    }

    #[test]
    fn window_does_not_shrink_or_open_in_small_steps() {
        let mut rx = receiver(100);
        rx.accept(0, 60);
        assert_eq!(rx.window(10, false), 40);
        rx.consume(5);
        assert_eq!(rx.window(10, false), 40);
        assert!(!rx.wants_update(10));
        rx.consume(55);
        assert!(rx.wants_update(10));
        assert_eq!(rx.window(10, false), 100);
        rx.consume(1000);
        assert_eq!(rx.window(10, false), 100);
    }

    #[test]
    fn scaled_window_keeps_its_promise() {
        let mut rx = Receiver::new(1 << 20);
        assert_eq!(rx.shift(), 5);
        rx.synchronize();
        assert_eq!(rx.window(1000, true), 65535);
        assert_eq!(rx.window(1000, false), 32768);
        let edge = rx.edge();
        rx.accept(0, 7);
        rx.window(1000, false);
        assert_eq!(rx.edge(), edge);
    }

    #[test]
    fn fin_waits_for_the_data_before_it() {
        let mut rx = receiver(100);
        rx.accept(10, 20);
        rx.finish(15);
        assert!(rx.fin.is_none());
        rx.finish(20);
        assert!(!rx.is_finished());
        assert_eq!(runs(&mut rx, 20, 30), []);
        rx.accept(0, 10);
        assert!(rx.is_finished());
        assert_eq!((rx.in_order(), rx.next()), (20, 21));
    }
}
