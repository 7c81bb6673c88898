//! Positions in one direction of a connection: 64-bit offsets inside, 32-bit sequence numbers on the wire.
//! The SYN is at offset -1 and the first byte of data at 0, so nothing but this file knows that sequence numbers wrap. The FIN follows
//! the last byte.

/// A position in one direction of a connection, relative to the first byte of data.
pub(crate) type Offset = i64;

/// Where the SYN is.
pub(crate) const SYN: Offset = -1;

/// Converts between the offsets and the sequence numbers of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    initial: u32,
}

impl Space {
    /// The direction whose SYN has the sequence number `initial`.
    pub(crate) const fn new(initial: u32) -> Space {
        Space { initial }
    }

    /// The sequence number of the SYN.
    pub(crate) const fn initial(self) -> u32 {
        self.initial
    }

    /// The sequence number at an offset.
    pub(crate) const fn wire(self, offset: Offset) -> u32 {
        self.initial.wrapping_add(offset.wrapping_add(1) as u32)
    }

    /// The offset of a sequence number that is within 2^31 of `near`.
    pub(crate) const fn offset(self, wire: u32, near: Offset) -> Offset {
        near.wrapping_add(wire.wrapping_sub(self.wire(near)) as i32 as i64)
    }
}

/// Whether one value of a wrapping 32-bit counter is before another.
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// An offset of data as the consumer counts: the SYN is no data.
pub(crate) fn stream_offset(offset: Offset) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

/// A length of the consumer as a distance of offsets; saturates.
pub(crate) fn distance(len: u64) -> Offset {
    Offset::try_from(len).unwrap_or(Offset::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_the_wrap() {
        let space = Space::new(u32::MAX - 2);
        assert_eq!(space.wire(SYN), u32::MAX - 2);
        assert_eq!(space.wire(2), 0);
        for offset in [0, 1, 2, 3, 1 << 31, 1 << 32, (1 << 40) + 5] {
            let wire = space.wire(offset);
            for near in [offset - 1000, offset, offset + 1000] {
                assert_eq!(space.offset(wire, near), offset);
            }
        }
    }

    #[test]
    fn order_of_counters_wraps() {
        assert!(is_before(u32::MAX, 0) && is_before(1, 2));
        assert!(!is_before(0, u32::MAX) && !is_before(2, 2));
    }
}
