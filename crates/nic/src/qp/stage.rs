//! Bytes that were received and cannot be parsed yet: the beginning of a frame, or messages behind one that waits.
//! Bytes are moved to the front of the buffer only when there is no room behind them, and an idle stage holds no large buffer.

use serde::{Deserialize, Serialize};

/// A buffer larger than this is freed when it is empty: an idle queue pair holds no memory for data.
const MAX_IDLE_CAPACITY: usize = 1024;

/// Received and not yet parsed. Invariant: `start <= end <= buffer.len()`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stage {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How many bytes must be here before parsing is tried again.
    need: usize,
}

impl Stage {
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The invariant holds.
    pub(super) fn invariants(&self) -> bool {
        self.start <= self.end && self.end <= self.buffer.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Sets how many bytes the next attempt needs.
    pub(super) fn set_need(&mut self, need: usize) {
        self.need = need;
    }

    /// Bytes that are missing before the next attempt.
    pub(super) fn missing(&self) -> usize {
        self.need.saturating_sub(self.len())
    }

    /// Room for `n` more bytes at the end; [`grow`](Stage::grow) says how many arrived.
    pub(super) fn room(&mut self, n: usize) -> &mut [u8] {
        if self.end + n > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
            if self.end + n > self.buffer.len() {
                self.buffer.resize(self.end + n, 0);
            }
        }
        &mut self.buffer[self.end..self.end + n]
    }

    pub(super) fn grow(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.invariants(), "more than the buffer holds");
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.grow(bytes.len());
    }

    /// The first `n` bytes were parsed.
    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.invariants(), "more consumed than received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// No more bytes are available for now.
    pub(super) fn free_idle_memory(&mut self) {
        if self.is_empty() && self.buffer.len() > MAX_IDLE_CAPACITY {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests;
