//! The limit on bytes of a link in flight. It keeps the path busy and no more: bytes that wait on the way only leave the processors'
//! caches.
//!
//! The limit grows with the path's round trip, which is the shortest seen, since longer ones include waiting.

use core::time::Duration;
use std::time::Instant;

use crate::slots::Slot;

#[cfg(test)]
mod tests;

/// The least limit: a few of the longest packets for each thread on the path, and more than the adapter acknowledges at once
/// (`carrier/open.rs`).
const MIN_LIMIT: u64 = 704 << 10;
/// Assumed rate of a long path, in bytes per nanosecond: 20 Gb/s.
const RATE: (u64, u64) = (5, 2);

/// Packets in flight.
#[derive(Debug, Default)]
pub(super) struct Inflight {
    bytes: u64,
    /// The packet being timed, and since when.
    timed: Option<(Slot, Instant)>,
    min_rtt: Option<Duration>,
}

impl Inflight {
    /// A packet is sent.
    pub(super) fn add(&mut self, slot: Slot, len: u32) {
        self.bytes += u64::from(len);
        // One at a time: reading the clock has a cost.
        self.timed.get_or_insert_with(|| (slot, Instant::now()));
    }

    /// A packet was completed; on acknowledged channels the peer then has it.
    pub(super) fn complete(&mut self, slot: Slot, len: u32) {
        self.bytes -= u64::from(len);
        if let Some((timed, since)) = self.timed
            && timed == slot
        {
            self.timed = None;
            let took = since.elapsed();
            self.min_rtt = Some(self.min_rtt.map_or(took, |shortest| shortest.min(took)));
        }
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.limit()
    }

    fn limit(&self) -> u64 {
        let trip = self.min_rtt.unwrap_or_default().as_nanos();
        let trip = u64::try_from(trip).unwrap_or(u64::MAX);
        MIN_LIMIT.max(trip.saturating_mul(RATE.0) / RATE.1)
    }
}
