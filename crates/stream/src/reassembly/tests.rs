//! Reassembly against a plain array, and its limits.

use proptest::prelude::*;

use super::*;

/// The byte at a position.
fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

/// Takes in what is new of a part; the length of a placed range is its record.
fn take(pieces: &mut Reassembly<u64>, from: u64, to: u64, placed: bool) {
    let mut at = from;
    while let Some((low, high)) = pieces.first_gap(at, to) {
        if placed && pieces.may_place() {
            let len = high - low;
            pieces.record(low, len, Box::new(len)).unwrap();
        } else {
            pieces.hold(low, &bytes(low, high)).unwrap();
        }
        at = high;
    }
}

proptest! {
    #[test]
    fn every_byte_comes_once_and_in_order(
        start in prop::sample::select(vec![0, 4000, u64::MAX - (1 << 27)]),
        parts in prop::collection::vec((0_u64..30_000, 1_u64..9000, any::<bool>(), any::<bool>()), 1..40),
    ) {
        let mut pieces = Reassembly::new(start);
        let mut seen = start;
        let mut buffer = Vec::new();
        let mut end = start;
        for (offset, len, placed, pops) in parts {
            let (from, to) = (start + offset, start + offset + len);
            take(&mut pieces, from, to, placed);
            end = end.max(to);
            let mut more = pops;
            while more {
                buffer.clear();
                match pieces.pop(&mut buffer) {
                    None => more = false,
                    Some(Piece::Held(n)) => {
                        prop_assert_eq!(&buffer[..], &bytes(seen, seen + n as u64)[..]);
                        seen += n as u64;
                    }
                    Some(Piece::Placed(len, record)) => {
                        prop_assert_eq!(len, *record);
                        seen += len;
                    }
                }
                prop_assert_eq!(pieces.next(), seen);
            }
        }
        take(&mut pieces, seen, end, false);
        while let Some(piece) = pieces.pop(&mut buffer) {
            seen += match piece {
                Piece::Held(n) => n as u64,
                Piece::Placed(len, _) => len,
            };
        }
        prop_assert_eq!(seen, end.max(seen));
        prop_assert!(pieces.is_empty());
        prop_assert_eq!(pieces.memory(), 0);
    }
}

#[test]
fn memory_is_limited_by_the_bytes_that_arrive() {
    let mut pieces = Reassembly::<()>::new(0);
    // Single bytes from the end to the beginning.
    for at in (1..20_000_u64).rev() {
        pieces.hold(at, &[byte(at)]).unwrap();
    }
    assert_eq!(pieces.memory(), 5 * PAGE as usize);
    assert_eq!(pieces.ranges.len(), 1);
}

#[test]
fn ranges_are_limited() {
    let mut pieces = Reassembly::<()>::new(0);
    let mut at = 1;
    while pieces.may_place() {
        pieces.record(at, 1, Box::new(())).unwrap();
        at += 2;
    }
    let mut held = 0;
    let refused = loop {
        match pieces.hold(at, &[0]) {
            Ok(()) => held += 1,
            Err(refused) => break refused,
        }
        at += 2;
    };
    assert_eq!((held, refused), (MAX_HELD_RANGES, Refused::TooManyRanges));
    // What fills a gap is taken.
    pieces.hold(at - 3, &[0]).unwrap();
}

#[test]
fn far_positions_are_refused() {
    let mut pieces = Reassembly::<()>::new(1000);
    pieces.hold(1000 + MAX_AHEAD_BYTES - 1, &[1]).unwrap();
    let position = 1001 + MAX_AHEAD_BYTES;
    let refused = Refused::TooFar {
        position,
        next: 1000,
    };
    assert_eq!(pieces.hold(position - 1, &[1]), Err(refused));
    assert_eq!(pieces.record(position - 1, 1, Box::new(())), Err(refused));
}
