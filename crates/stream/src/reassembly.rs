//! What has arrived of a byte stream beyond the byte that is processed next: bytes that are held, and ranges whose payload is placed.
//! A position is covered once and never changed. Everything is below `next + MAX_AHEAD_BYTES`, held bytes take at most the pages that
//! they touch, and the ranges are limited in number. It knows nothing of frames.

use std::collections::BTreeMap;

/// How far beyond the next byte anything is taken. The receive window of a carrier must not be larger.
pub const MAX_AHEAD_BYTES: u64 = 64 << 20;
/// Ranges whose payload is placed; what arrives beyond is held.
pub const MAX_PLACED_RANGES: usize = 4096;
/// Gaps between ranges that are held; a byte that would make another is refused. More than a TCP of ours reports.
pub const MAX_HELD_RANGES: usize = MAX_PLACED_RANGES + 256;

/// Held bytes are kept in pages of this size.
const PAGE: u64 = 4096;

/// Why bytes are not taken: the carrier must treat them as not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too far beyond the next byte.
    #[error("position {position} is not within {MAX_AHEAD_BYTES} bytes of the next one, {next}")]
    TooFar {
        /// The position behind the last byte.
        position: u64,
        /// The next byte.
        next: u64,
    },
    /// Too many ranges.
    #[error("more than {MAX_HELD_RANGES} ranges")]
    TooManyRanges,
}

/// What comes next in the stream.
#[derive(Debug)]
pub enum Piece<T> {
    /// So many bytes were copied out.
    Held(usize),
    /// A range whose payload is placed, and its length.
    Placed(u64, Box<T>),
}

#[derive(Debug)]
enum Range<T> {
    Held { end: u64 },
    Placed { end: u64, record: Box<T> },
}

impl<T> Range<T> {
    fn end(&self) -> u64 {
        match self {
            Range::Held { end } | Range::Placed { end, .. } => *end,
        }
    }
}

/// Ranges of a stream beyond the next byte.
#[derive(Debug)]
pub struct Reassembly<T> {
    next: u64,
    ranges: BTreeMap<u64, Range<T>>,
    placed: usize,
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl<T> Reassembly<T> {
    /// Nothing has arrived beyond `next`.
    pub fn new(next: u64) -> Reassembly<T> {
        Reassembly {
            next,
            ranges: BTreeMap::new(),
            placed: 0,
            pages: BTreeMap::new(),
        }
    }

    /// The byte that is processed next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Nothing has arrived beyond the next byte.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Another range may be placed.
    pub fn may_place(&self) -> bool {
        self.placed < MAX_PLACED_RANGES
    }

    /// Bytes of memory for bytes that are held.
    pub fn memory(&self) -> usize {
        self.pages.len() * PAGE as usize
    }

    /// The first part of `from..to` that has not arrived.
    pub fn first_gap(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut from = from.max(self.next);
        if let Some((_, range)) = self.ranges.range(..=from).next_back() {
            from = from.max(range.end());
        }
        while from < to {
            match self.ranges.range(from..).next() {
                Some((begin, range)) if *begin == from => from = range.end(),
                Some((begin, _)) => return Some((from, to.min(*begin))),
                None => return Some((from, to)),
            }
        }
        None
    }

    /// `len` bytes were processed as they arrived; they were the next.
    pub fn advance(&mut self, len: u64) {
        debug_assert!(
            self.first_gap(self.next, self.next + len)
                .is_none_or(|gap| gap == (self.next, self.next + len)),
            "bytes that are processed twice"
        );
        self.next += len;
    }

    /// Holds bytes of a gap.
    pub fn hold(&mut self, from: u64, bytes: &[u8]) -> Result<(), Refused> {
        let to = self.check(from, bytes.len() as u64)?;
        let mut begin = from;
        if let Some((before, Range::Held { end })) = self.ranges.range(..from).next_back()
            && *end == from
        {
            begin = *before;
        }
        let behind = match self.ranges.get(&to) {
            Some(Range::Held { end }) => Some(*end),
            _ => None,
        };
        let held = self.ranges.len() - self.placed;
        if begin == from && behind.is_none() && held >= MAX_HELD_RANGES {
            return Err(Refused::TooManyRanges);
        }
        if behind.is_some() {
            self.ranges.remove(&to);
        }
        let end = behind.unwrap_or(to);
        self.ranges.insert(begin, Range::Held { end });
        let (mut at, mut rest) = (from, bytes);
        while !rest.is_empty() {
            let page = self
                .pages
                .entry(at / PAGE)
                .or_insert_with(|| Box::new([0; PAGE as usize]));
            let room = &mut page[(at % PAGE) as usize..];
            let n = room.len().min(rest.len());
            room[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            at += n as u64;
        }
        Ok(())
    }

    /// Records that the payload of a gap's bytes is placed.
    pub fn record(&mut self, from: u64, len: u64, record: Box<T>) -> Result<(), Refused> {
        let end = self.check(from, len)?;
        self.ranges.insert(from, Range::Placed { end, record });
        self.placed += 1;
        Ok(())
    }

    /// Takes what comes next, if it has arrived; held bytes are copied to the end of `to`, at most a page of them.
    pub fn pop(&mut self, to: &mut Vec<u8>) -> Option<Piece<T>> {
        match self.ranges.remove(&self.next)? {
            Range::Placed { end, record } => {
                self.placed -= 1;
                let len = end - self.next;
                self.next = end;
                Some(Piece::Placed(len, record))
            }
            Range::Held { end } => {
                let number = self.next / PAGE;
                let begin = (self.next % PAGE) as usize;
                let n = (end - self.next).min(PAGE - begin as u64);
                let page = self.pages.get(&number);
                debug_assert!(page.is_some(), "held bytes without a page");
                to.extend_from_slice(page.map_or(&[][..], |p| &p[begin..begin + n as usize]));
                self.next += n;
                if self.next < end {
                    self.ranges.insert(self.next, Range::Held { end });
                }
                self.free_page(number);
                Some(Piece::Held(n as usize))
            }
        }
    }

    /// Frees a page of which nothing is needed any more.
    fn free_page(&mut self, number: u64) {
        let (begin, end) = (number * PAGE, (number + 1) * PAGE);
        let is_held = |range: &Range<T>| matches!(range, Range::Held { .. });
        if self.next >= end
            || !self
                .ranges
                .range(begin..end)
                .any(|(_, range)| is_held(range))
        {
            self.pages.remove(&number);
        }
    }

    /// The end of bytes that may be taken: they are all new.
    fn check(&self, from: u64, len: u64) -> Result<u64, Refused> {
        let next = self.next;
        let to = from.saturating_add(len);
        debug_assert!(
            self.first_gap(from, to) == Some((from, to)),
            "bytes that have arrived before"
        );
        if to.saturating_sub(next) > MAX_AHEAD_BYTES {
            return Err(Refused::TooFar { position: to, next });
        }
        Ok(to)
    }
}

/// What is held between placed ranges is never refused because of them.
const _: () = assert!(MAX_HELD_RANGES > MAX_PLACED_RANGES + 1);

#[cfg(test)]
mod tests;
