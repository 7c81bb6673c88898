//! One direction of a connection: bytes are delivered later and in other chunks than they were sent.
//! Their order is kept and, unless flips are configured, their values. Chunks and stalls are random and independent of frames.

use core::time::Duration;
use std::collections::VecDeque;

use verbena_stream::Time;

use crate::rng::{Ratio, Rng};

/// How a link divides what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// As it was sent.
    Whole,
    /// Into chunks of this size.
    Fixed(usize),
    /// Into chunks of one to this many bytes.
    UpTo(usize),
}

/// The properties of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// How it divides.
    pub chunks: Chunks,
    /// Bytes it holds before the sender must wait.
    pub window: usize,
    /// How often it accepts less than it has room for.
    pub short_write: Ratio,
    /// Least and greatest latency of a chunk.
    pub latency: (Duration, Duration),
    /// How often a chunk is delayed further.
    pub stall: Ratio,
    /// By how much.
    pub stall_time: Duration,
    /// How often a chunk arrives with one bit flipped.
    pub flip: Ratio,
}

impl LinkOptions {
    /// A link without faults.
    pub fn without_faults() -> LinkOptions {
        LinkOptions {
            chunks: Chunks::Whole,
            window: usize::MAX,
            short_write: Ratio::NEVER,
            latency: (Duration::ZERO, Duration::ZERO),
            stall: Ratio::NEVER,
            stall_time: Duration::ZERO,
            flip: Ratio::NEVER,
        }
    }
}

/// A chunk under way.
#[derive(Debug)]
struct Chunk {
    arrives: Time,
    bytes: Vec<u8>,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Link {
    options: LinkOptions,
    rng: Rng,
    queue: VecDeque<Chunk>,
    in_flight: usize,
    last_arrival: Time,
    /// Bytes sent since the beginning.
    sent: u64,
    /// When the end of the stream arrives.
    eof: Option<Time>,
    closed: bool,
    /// Stream positions of flipped bytes.
    flipped: Vec<u64>,
}

impl Link {
    /// An idle link.
    pub fn new(options: LinkOptions, rng: Rng) -> Link {
        Link {
            options,
            rng,
            queue: VecDeque::new(),
            in_flight: 0,
            last_arrival: Time::ZERO,
            sent: 0,
            eof: None,
            closed: false,
            flipped: Vec::new(),
        }
    }

    /// Bytes it accepts now; a short write accepts fewer than there is room for.
    pub fn room(&mut self) -> usize {
        if self.closed {
            return 0;
        }
        let room = self.options.window.saturating_sub(self.in_flight);
        if room > 1 && self.rng.chance(self.options.short_write) {
            return self.rng.len(1, room.min(1 << 16));
        }
        room
    }

    /// Takes bytes; `may_flip` if a damaged byte would be detected.
    pub fn send(&mut self, bytes: &[u8], may_flip: bool, now: Time) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = match self.options.chunks {
                Chunks::Whole => rest.len(),
                Chunks::Fixed(n) => n.max(1),
                Chunks::UpTo(n) => self.rng.len(1, n.max(1)),
            };
            let (piece, behind) = rest.split_at(n.min(rest.len()));
            self.send_chunk(piece.to_vec(), may_flip, now);
            rest = behind;
        }
        self.in_flight += bytes.len();
    }

    fn send_chunk(&mut self, mut bytes: Vec<u8>, may_flip: bool, now: Time) {
        if may_flip && self.rng.chance(self.options.flip) {
            let at = self.rng.len(0, bytes.len() - 1);
            bytes[at] ^= 1 << self.rng.below(8);
            self.flipped.push(self.sent + at as u64);
        }
        self.sent += bytes.len() as u64;
        let arrives = self.arrival(now);
        self.queue.push_back(Chunk { arrives, bytes });
    }

    /// Arrival times are in order, so that bytes never overtake each other.
    fn arrival(&mut self, now: Time) -> Time {
        let (low, high) = self.options.latency;
        let nanos = self
            .rng
            .range(low.as_nanos() as u64, high.as_nanos() as u64);
        let mut travel = Duration::from_nanos(nanos);
        if self.rng.chance(self.options.stall) {
            travel += self.options.stall_time;
        }
        self.last_arrival = self.last_arrival.max(now + travel);
        self.last_arrival
    }

    /// Takes a chunk that has arrived.
    pub fn arrive(&mut self, now: Time) -> Option<Vec<u8>> {
        let here = self.queue.front().is_some_and(|p| p.arrives <= now);
        let piece = if here { self.queue.pop_front() } else { None }?;
        self.in_flight -= piece.bytes.len();
        Some(piece.bytes)
    }

    /// Ends the stream.
    pub fn close(&mut self, now: Time) {
        if !self.closed {
            self.closed = true;
            self.eof = Some(self.arrival(now));
        }
    }

    /// Whether the sender has ended the stream.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True once, when the end of the stream has arrived.
    pub fn take_eof(&mut self, now: Time) -> bool {
        self.queue.is_empty() && self.eof.take_if(|at| *at <= now).is_some()
    }

    /// Drops everything under way, and accepts no more.
    pub fn cut(&mut self) {
        self.queue.clear();
        self.in_flight = 0;
        self.closed = true;
        self.eof = None;
    }

    /// When something arrives next.
    pub fn next_arrival(&self) -> Option<Time> {
        self.queue.front().map(|p| p.arrives).or(self.eof)
    }

    /// Bytes sent since the beginning.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The positions of flipped bits in the stream.
    pub fn flipped(&self) -> &[u64] {
        &self.flipped
    }
}

#[cfg(test)]
mod tests;
