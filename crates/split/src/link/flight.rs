//! How much of a link's packets is on its way.
//! It promises a bound that keeps the way busy and no more: what waits in the middle of it only leaves the processors' caches.
//! It refuses to know what travels.
//!
//! The bound grows with the way's length. Its round trip is the shortest that was seen, since all others had to wait as well.

use core::time::Duration;
use std::time::Instant;

use crate::slots::Slot;

#[cfg(test)]
mod tests;

/// So many bytes may be on their way however short it is: a few of the longest packets for each of those who work on them, and more
/// than the adapter acknowledges at once (`carrier/open.rs`).
const LEAST: u64 = 704 << 10;
/// Bytes that a long way takes in per nanosecond: 20 Gb/s.
const RATE: (u64, u64) = (5, 2);

/// Packets on their way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    bytes: u64,
    /// The packet that is timed, and since when.
    timed: Option<(Slot, Instant)>,
    shortest: Option<Duration>,
}

impl Flight {
    /// A packet leaves.
    pub(super) fn leave(&mut self, slot: Slot, len: u32) {
        self.bytes += u64::from(len);
        // One at a time: the clock costs something.
        self.timed.get_or_insert_with(|| (slot, Instant::now()));
    }

    /// The carrier is done with a packet, whose peer has it where channels are acknowledged.
    pub(super) fn land(&mut self, slot: Slot, len: u32) {
        self.bytes -= u64::from(len);
        if let Some((timed, since)) = self.timed
            && timed == slot
        {
            self.timed = None;
            let took = since.elapsed();
            self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        }
    }

    /// More may leave.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.most()
    }

    fn most(&self) -> u64 {
        let trip = self.shortest.unwrap_or_default().as_nanos();
        let trip = u64::try_from(trip).unwrap_or(u64::MAX);
        LEAST.max(trip.saturating_mul(RATE.0) / RATE.1)
    }
}
