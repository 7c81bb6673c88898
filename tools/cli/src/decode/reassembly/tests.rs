//! Order, overlap, wrap and gaps of one TCP direction.

use super::*;

fn taken(r: &mut Reassembly, pieces: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (seq, bytes) in pieces {
        r.take(*seq, bytes, false, &mut out);
    }
    out
}

#[test]
fn segments_in_any_order_are_reassembled() {
    let mut r = Reassembly::new(100);
    let out = taken(&mut r, &[(106, b"ghi"), (103, b"def"), (100, b"abc")]);
    assert_eq!(out, b"abcdefghi");
    assert_eq!((r.buffered(), r.gap()), (0, None));
}

#[test]
fn retransmissions_and_overlaps_are_taken_once() {
    let mut r = Reassembly::new(0);
    let pieces: [(u32, &[u8]); 6] = [
        (0, b"abc"),
        (0, b"abc"),
        (1, b"bcde"),
        (8, b"i"),
        (8, b"ij"),
        (4, b"efghi"),
    ];
    assert_eq!(taken(&mut r, &pieces), b"abcdefghij");
    assert_eq!(r.buffered(), 0);
}

#[test]
fn sequence_numbers_wrap() {
    let first = u32::MAX - 2;
    let mut r = Reassembly::new(first);
    let out = taken(&mut r, &[(first.wrapping_add(4), b"ef"), (first, b"abcd")]);
    assert_eq!(out, b"abcdef");
    assert!(r.has_reached(3) && !r.has_reached(4));
}

#[test]
fn numbers_before_the_first_byte_are_old() {
    let mut r = Reassembly::new(10);
    assert_eq!(taken(&mut r, &[(5, b"old"), (8, b"xxab")]), b"ab");
}

#[test]
fn fin_behind_gap_waits_for_missing_bytes() {
    let mut r = Reassembly::new(0);
    let mut out = Vec::new();
    r.take(0, b"ab", false, &mut out);
    r.take(5, b"f", true, &mut out);
    assert_eq!(
        (r.gap(), r.buffered(), r.is_finished()),
        (Some(3), 1, false)
    );
    r.take(2, b"cde", false, &mut out);
    assert_eq!(out, b"abcdef");
    assert!(r.is_finished() && r.has_reached(7) && !r.has_reached(8));
}

#[test]
fn lone_fin_ahead_leaves_a_gap() {
    let mut r = Reassembly::new(0);
    r.take(9, b"", true, &mut Vec::new());
    assert_eq!(r.gap(), Some(9));
    assert_eq!(r.missing_before(4), 4);
}
