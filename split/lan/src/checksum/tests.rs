//! RFC 1071's example, a captured packet, and a reference implementation.

use proptest::prelude::*;

use super::*;

/// The definition: 16-bit words in network order, with end-around carry.
fn reference_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn sum_matches_rfc_1071_example() {
    // RFC 1071, 3: the sum is ddf2 before it is complemented.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::default().with(&bytes).finish(), !0xddf2);
}

#[test]
fn sum_matches_known_ipv4_header() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00, 0x01,
        0xc0, 0xa8, 0x00, 0xc7,
    ];
    assert_eq!(Sum::default().with(&header).finish(), 0xb861);
}

#[test]
fn checksum_field_outside_frame_is_refused() {
    let mut frame = [0; 20];
    for (start, offset) in [(20, 0), (19, 0), (0, 19), (10, 9), (u16::MAX, u16::MAX)] {
        let refused = Err(FrameError::Checksum {
            start,
            offset,
            len: 20,
        });
        assert_eq!(
            complete_checksum(&mut frame, PartialChecksum { start, offset }),
            refused
        );
    }
    assert_eq!(frame, [0; 20]);
    let last = PartialChecksum {
        start: 10,
        offset: 8,
    };
    assert_eq!(complete_checksum(&mut frame, last), Ok(()));
    assert_eq!(frame[18..], [0xff, 0xff]);
}

#[test]
fn zero_checksum_is_written_as_all_ones() {
    let mut frame = [0xff, 0xff, 0, 0];
    let partial = PartialChecksum {
        start: 0,
        offset: 2,
    };
    assert_eq!(complete_checksum(&mut frame, partial), Ok(()));
    assert_eq!(frame, [0xff; 4]);
}

proptest! {
    #[test]
    fn fast_sum_equals_reference_sum(bytes in prop::collection::vec(any::<u8>(), 0..200), split in 0usize..200) {
        prop_assert_eq!(Sum::default().with(&bytes).finish(), reference_sum(&bytes));
        let (a, b) = bytes.split_at((split & !1).min(bytes.len() & !1));
        prop_assert_eq!(Sum::default().with(a).with(b).finish(), reference_sum(&bytes));
    }

    /// Completing a partial sum gives the whole sum and changes nothing else.
    #[test]
    fn complete_writes_the_whole_checksum(
        before in prop::collection::vec(any::<u8>(), 2..200),
        start in 0u16..200,
        offset in 0u16..200,
    ) {
        let mut after = before.clone();
        if complete_checksum(&mut after, PartialChecksum { start, offset }).is_ok() {
            let at = usize::from(start + offset);
            let whole = match reference_sum(&before[usize::from(start)..]) {
                0 => 0xffff,
                sum => sum,
            };
            let mut expected = before;
            expected[at..at + 2].copy_from_slice(&whole.to_be_bytes());
            prop_assert_eq!(after, expected);
        } else {
            prop_assert!(usize::from(start + offset) + 2 > before.len());
            prop_assert_eq!(after, before);
        }
    }
}
