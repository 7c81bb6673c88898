//! One direction of a link: a queue for each of eight priorities in front of a token bucket, then the faults. Frames and bytes that wait
//! or travel are limited; what does not fit is dropped and counted. The order of frames without jitter and reordering is kept within a
//! priority.

use core::time::Duration;
use std::collections::VecDeque;

use crate::faults::{Faults, Ratio};
use crate::frame::{ETH_LEN, Frame};
use crate::rng::Rng;

const PRIORITIES: usize = 8;
/// Limit on the bytes that travel on one direction of a link with a delay.
const FLIGHT_LIMIT: usize = 64 << 20;
/// What a short frame counts towards the limits, so that the number of frames is limited too.
const SHORTEST: usize = 256;
/// Bytes that may pass at once after a pause, above the bandwidth.
const BURST: u64 = 16 << 10;
/// How long a frame is held back to be overtaken.
const HOLD: Duration = Duration::from_millis(2);

/// What happened to the frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames that arrived at the other end, repetitions included.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lost at random.
    pub lost: u64,
    /// Arrived twice.
    pub repeated: u64,
    /// Had a bit inverted.
    pub corrupted: u64,
    /// Were held back.
    pub reordered: u64,
    /// Dropped because a queue or the link was full.
    pub overflowed: u64,
    /// Dropped because the link is cut.
    pub cut: u64,
}

#[derive(Debug)]
pub(crate) struct Lane {
    queues: [VecDeque<Frame>; PRIORITIES],
    queued: usize,
    queue_limit: usize,
    in_flight: usize,
    /// When the token bucket lets the next frame pass.
    free_at: Duration,
    rng: Rng,
    pub(crate) counters: Counters,
}

fn weight(frame: &Frame) -> usize {
    frame.bytes.len().max(SHORTEST)
}

impl Lane {
    pub(crate) fn new(queue_limit: usize, rng: Rng) -> Lane {
        Lane {
            queues: Default::default(),
            queued: 0,
            queue_limit,
            in_flight: 0,
            free_at: Duration::ZERO,
            rng,
            counters: Counters::default(),
        }
    }

    fn happens(&mut self, ratio: Ratio) -> bool {
        // No draw without a fault: a run without faults draws nothing.
        ratio != Ratio::NEVER
            && self.rng.below(u64::from(Ratio::ALWAYS.get())) < u64::from(ratio.get())
    }

    /// A frame enters. What leaves is added to `out` with its time of arrival. Returns the time at which [`Lane::wake`] has to be called,
    /// if this frame is the first that waits.
    pub(crate) fn enter(
        &mut self,
        frame: Frame,
        faults: &Faults,
        now: Duration,
        out: &mut Vec<(Duration, Frame)>,
    ) -> Option<Duration> {
        if self.happens(faults.loss) {
            self.counters.lost += 1;
            return None;
        }
        if self.queued == 0 && (faults.bandwidth.is_none() || self.free_at <= now) {
            self.transmit(frame, faults, now, out);
            return None;
        }
        if self.queued + weight(&frame) > self.queue_limit {
            self.counters.overflowed += 1;
            return None;
        }
        let first = self.queued == 0;
        self.queued += weight(&frame);
        self.queues[frame.priority() % PRIORITIES].push_back(frame);
        first.then_some(self.free_at)
    }

    /// Sends what may pass now; returns when the next frame may.
    pub(crate) fn wake(
        &mut self,
        faults: &Faults,
        now: Duration,
        out: &mut Vec<(Duration, Frame)>,
    ) -> Option<Duration> {
        while faults.bandwidth.is_none() || self.free_at <= now {
            let next = self.queues.iter_mut().rev().find_map(VecDeque::pop_front);
            let frame = next?;
            self.queued = self.queued.saturating_sub(weight(&frame));
            self.transmit(frame, faults, now, out);
        }
        (self.queued > 0).then_some(self.free_at)
    }

    fn transmit(
        &mut self,
        mut frame: Frame,
        faults: &Faults,
        now: Duration,
        out: &mut Vec<(Duration, Frame)>,
    ) {
        if let Some(bits) = faults.bandwidth {
            let time = |bytes: u64| {
                let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(bits.max(1));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            let earliest = now.saturating_sub(time(BURST));
            let start = self.free_at.max(earliest);
            self.free_at = start.saturating_add(time(frame.bytes.len() as u64));
        }
        if self.happens(faults.corrupt) && frame.bytes.len() > ETH_LEN {
            // The addresses stay: an adapter would drop the frame, and a switch may learn a wrong address.
            let bits = (frame.bytes.len() - ETH_LEN) as u64 * 8;
            let bit = self.rng.below(bits) as usize;
            frame.bytes[ETH_LEN + bit / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        let again = self.happens(faults.repeat).then(|| frame.clone());
        if let Some(again) = again {
            self.counters.repeated += 1;
            self.travel(again, faults, now, out);
        }
        self.travel(frame, faults, now, out);
    }

    fn travel(
        &mut self,
        frame: Frame,
        faults: &Faults,
        now: Duration,
        out: &mut Vec<(Duration, Frame)>,
    ) {
        let mut at = now.saturating_add(faults.delay);
        if !faults.jitter.is_zero() {
            let most = u64::try_from(faults.jitter.as_nanos()).unwrap_or(u64::MAX);
            at = at.saturating_add(Duration::from_nanos(self.rng.below(most.saturating_add(1))));
        }
        if self.happens(faults.reorder) {
            self.counters.reordered += 1;
            at = at.saturating_add(HOLD);
        }
        if self.in_flight + weight(&frame) > FLIGHT_LIMIT {
            self.counters.overflowed += 1;
            return;
        }
        self.in_flight += weight(&frame);
        out.push((at, frame));
    }

    /// A frame has arrived, or was dropped on the way.
    pub(crate) fn arrived(&mut self, frame: &Frame, dropped: bool) {
        self.in_flight = self.in_flight.saturating_sub(weight(frame));
        if dropped {
            self.counters.cut += 1;
        } else {
            self.counters.frames += 1;
            self.counters.bytes += frame.bytes.len() as u64;
        }
    }

    /// The link is cut: what waits is dropped.
    pub(crate) fn clear(&mut self) {
        for queue in &mut self.queues {
            self.counters.cut += queue.len() as u64;
            queue.clear();
        }
        self.queued = 0;
    }
}

#[cfg(test)]
mod tests;
