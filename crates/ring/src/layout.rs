//! Where the words and the records of a ring are in its memory. Words that different sides write often are two cache lines apart, since
//! processors fetch lines in pairs; the announcements, which are read for each record and seldom written, share a line with nothing else
//! that changes.

/// The consumer's position: all records before it have been read. Written by the consumer.
pub const HEAD: usize = 0;
/// Nonzero: the consumer sleeps, or is about to. Set by the consumer, taken back by either side.
pub const ASLEEP: usize = 128;
/// Nonzero: the consumer reads no further record. Written by the consumer.
pub const CLOSED: usize = 136;
/// Nonzero: the producer waits for room. Set by the producer, taken back by either side.
pub const WAITS: usize = 256;
/// The records. Everything before is called the header of the ring.
pub const DATA: usize = 384;

/// Bytes of a page, for which both rings of a connection are kept apart.
const PAGE: usize = 4096;

/// Least bytes for records: a record of each kind fits when the consumer has read a quarter of them.
pub const MIN_CAPACITY: usize = 64;
/// Most bytes for records.
pub const MAX_CAPACITY: usize = 1 << 30;

/// The size of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    capacity: usize,
}

impl Layout {
    /// With `capacity` bytes for records and their header words: a power of two from [`MIN_CAPACITY`] to [`MAX_CAPACITY`].
    pub const fn new(capacity: usize) -> Option<Layout> {
        let valid =
            capacity.is_power_of_two() && capacity >= MIN_CAPACITY && capacity <= MAX_CAPACITY;
        if valid {
            Some(Layout { capacity })
        } else {
            None
        }
    }

    /// Bytes for records and their header words.
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// Bytes of memory, header included.
    pub const fn memory_len(self) -> usize {
        DATA + self.capacity
    }

    /// Bytes of memory for two rings, each at the beginning of a page.
    pub const fn pair_len(self) -> usize {
        2 * self.memory_len().next_multiple_of(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_a_power_of_two_within_limits() {
        for wrong in [0, 1, 32, 63, 65, 96, 1 << 31, usize::MAX] {
            assert_eq!(Layout::new(wrong), None, "{wrong}");
        }
        for right in [64, 4096, 1 << 30] {
            let layout = Layout::new(right).unwrap();
            assert_eq!(layout.capacity(), right);
            assert_eq!(layout.memory_len(), right + 384);
        }
    }

    #[test]
    fn two_rings_do_not_share_a_page() {
        let pair_len = |capacity| Layout::new(capacity).unwrap().pair_len();
        assert_eq!(pair_len(64), 2 * 4096);
        assert_eq!(pair_len(65536), 2 * (65536 + 4096));
    }
}
