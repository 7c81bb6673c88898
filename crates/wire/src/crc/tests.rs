//! The checksum against its published check value, a bit-by-bit reference, and itself in pieces.

use proptest::prelude::*;

use super::*;

/// One bit at a time, from the polynomial.
fn naive(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn crc32c_check_value_and_wire_order_match() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(b""), 0);
    // RFC 5044 figure 5 prints the bytes of 0x83992352 in this order.
    assert_eq!(crc32c_wire(0x8399_2352), [0x52, 0x23, 0x99, 0x83]);
}

#[test]
fn every_length_to_1024_matches_reference() {
    let bytes: Vec<u8> = (0..1024u32).map(|i| (i * 37 + i / 256) as u8).collect();
    for len in 0..=bytes.len() {
        assert_eq!(crc32c(&bytes[..len]), naive(&bytes[..len]), "{len} bytes");
    }
}

#[test]
fn debug_shows_the_value_so_far() {
    let mut crc = Crc32c::default();
    crc.update(b"123456789");
    assert_eq!(format!("{crc:?}"), "Crc32c(0xe3069283)");
}

proptest! {
    #[test]
    fn incremental_crc_equals_whole_crc(
        bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        cuts in proptest::collection::vec(0usize..4096, 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let mut crc = Crc32c::new();
        let mut from = 0;
        for cut in cuts {
            crc.update(&bytes[from..cut]);
            from = cut;
        }
        crc.update(&bytes[from..]);
        prop_assert_eq!(crc.finish(), naive(&bytes));
    }
}
