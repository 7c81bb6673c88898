//! Atomic headers both ways, unused and reserved fields, undefined codes, and the arithmetic
//! against worked results and a bit-by-bit reference.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

const FETCH_ADD_BYTES: &str = "00000000 00000011 12345678 0000000000001000
    0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff";
const CMP_SWAP_BYTES: &str = "00000002 00000012 12345678 0000000000001000
    0000000000000009 ffffffffffffffff 0000000000000007 ffffffffffffffff";

const WRITE_BYTES: &str = "0000000f 00000013 12345678 0000000000001000
    0102030405060708 0000000000000000 0000000000000000 0000000000000000";
const FLUSH_RANGE_BYTES: &str = "0000000e 00000014 12345678 0000000000001000
    0000000000000040 0000000000000001 0000000000000000 0000000000000000";
const FLUSH_REGION_BYTES: &str = "0000000e 00000015 12345678 0000000000001000
    0000000000000000 0000000000000001 0000000000000001 0000000000000000";

fn request(op: AtomicOp, id: u32) -> AtomicRequest {
    AtomicRequest {
        op,
        id,
        stag: Stag::new(0x1234_5678),
        to: To::new(0x1000),
    }
}

fn fetch_add() -> AtomicRequest {
    request(AtomicOp::FetchAdd { add: 5, mask: 0 }, 0x11)
}

fn cmp_swap() -> AtomicRequest {
    let op = AtomicOp::CmpSwap {
        swap: 9,
        swap_mask: u64::MAX,
        compare: 7,
        compare_mask: u64::MAX,
    };
    request(op, 0x12)
}

fn write() -> AtomicRequest {
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
    request(AtomicOp::Write { bytes }, 0x13)
}

fn flush_range() -> AtomicRequest {
    request(AtomicOp::Flush(FlushScope::Range { len: 64 }), 0x14)
}

fn flush_region() -> AtomicRequest {
    request(AtomicOp::Flush(FlushScope::Region), 0x15)
}

#[test]
fn requests_parse_and_emit_exactly() {
    for (text, value) in [
        (FETCH_ADD_BYTES, fetch_add()),
        (CMP_SWAP_BYTES, cmp_swap()),
        (WRITE_BYTES, write()),
        (FLUSH_RANGE_BYTES, flush_range()),
        (FLUSH_REGION_BYTES, flush_region()),
    ] {
        let bytes = hex(text);
        assert_eq!(AtomicRequest::parse(&bytes), Ok(value));
        assert_eq!(value.emit().as_slice(), bytes);
        refuses_every_prefix(&bytes, AtomicRequest::parse);
    }
}

#[test]
fn response_parses_and_emits_exactly() {
    let bytes = hex("00000011 000000000000002a");
    let response = AtomicResponse {
        id: 0x11,
        original: 0x2a,
    };
    assert_eq!(AtomicResponse::parse(&bytes), Ok(response));
    assert_eq!(response.emit().as_slice(), bytes);
    refuses_every_prefix(&bytes, AtomicResponse::parse);
    assert_eq!(response.to_string(), "id=0x11 original=0x2a");
}

#[test]
fn reserved_and_unused_fields_are_ignored() {
    let reserved = [(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xf0)];
    ignores_bits(&hex(CMP_SWAP_BYTES), &reserved, AtomicRequest::parse);
    let mut unused: Vec<(usize, u8)> = (36..52).map(|at| (at, 0xff)).collect();
    unused.extend(reserved);
    ignores_bits(&hex(FETCH_ADD_BYTES), &unused, AtomicRequest::parse);
    unused.extend((28..36).map(|at| (at, 0xff)));
    ignores_bits(&hex(WRITE_BYTES), &unused, AtomicRequest::parse);
    let mut unused: Vec<(usize, u8)> = (44..52).map(|at| (at, 0xff)).collect();
    unused.extend(reserved);
    ignores_bits(&hex(FLUSH_RANGE_BYTES), &unused, AtomicRequest::parse);
    unused.extend((20..28).map(|at| (at, 0xff)));
    ignores_bits(&hex(FLUSH_REGION_BYTES), &unused, AtomicRequest::parse);
}

#[test]
fn undefined_placement_or_selectivity_is_refused() {
    // Persistence, both types, none, high bits; a third selectivity.
    for (placement, selectivity) in [
        (2, 0),
        (3, 0),
        (0, 0),
        (1 << 63 | 1, 1),
        (1, 2),
        (1, 1 << 32),
    ] {
        let mut bytes = hex(FLUSH_RANGE_BYTES);
        bytes[28..36].copy_from_slice(&u64::to_be_bytes(placement));
        bytes[36..44].copy_from_slice(&u64::to_be_bytes(selectivity));
        let expected = Malformed::FlushKind {
            placement,
            selectivity,
        };
        assert_eq!(AtomicRequest::parse(&bytes), Err(expected));
    }
}

#[test]
fn write_replaces_and_flush_keeps_the_word() {
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(write().op.apply(77), u64::from_ne_bytes(bytes));
    assert_eq!(flush_range().op.apply(77), 77);
    assert!(write().op.is_extension() && flush_region().op.is_extension());
    assert!(!fetch_add().op.is_extension() && !cmp_swap().op.is_extension());
}

#[test]
fn undefined_codes_are_refused() {
    for got in (0..16).filter(|code| ![0, 2, 14, 15].contains(code)) {
        let mut bytes = hex(CMP_SWAP_BYTES);
        bytes[3] = got;
        assert_eq!(
            AtomicRequest::parse(&bytes),
            Err(Malformed::AtomicCode { got })
        );
    }
}

#[test]
fn atomic_results_match_worked_examples() {
    let fetch_add = |original, add, mask| AtomicOp::FetchAdd { add, mask }.apply(original);
    assert_eq!(
        fetch_add(
            0x0000_0000_ffff_ffff,
            0x0000_0001_0000_0001,
            0x8000_0000_8000_0000
        ),
        0x0000_0001_0000_0000
    );
    assert_eq!(
        fetch_add(0x0000_0000_ffff_ffff, 0x0000_0001_0000_0001, 0),
        0x0000_0002_0000_0000
    );
    assert_eq!(
        fetch_add(
            0x00ff_00ff_00ff_00ff,
            0x0001_0001_0001_0001,
            0x8000_8000_8000_8000
        ),
        0x0100_0100_0100_0100
    );
    assert_eq!(
        fetch_add(0x0101_0101_0101_0101, u64::MAX, 0x8080_8080_8080_8080),
        0
    );

    let swap = AtomicOp::CmpSwap {
        swap: 0xaaaa_aaaa_aaaa_aaaa,
        swap_mask: 0x0000_0000_ffff_0000,
        compare: 0x1100_0000_0000_0000,
        compare_mask: 0xff00_0000_0000_0000,
    };
    assert_eq!(swap.apply(0x1122_3344_5566_7788), 0x1122_3344_aaaa_7788);
    assert_eq!(swap.apply(0x1022_3344_5566_7788), 0x1022_3344_5566_7788);
}

#[test]
fn prints_one_line() {
    assert_eq!(
        fetch_add().to_string(),
        "FetchAdd add=0x5 mask=0x0 id=0x11 stag=0x12345678 to=0x1000"
    );
    assert_eq!(
        write().to_string(),
        "AtomicWrite 0102030405060708 id=0x13 stag=0x12345678 to=0x1000"
    );
    assert_eq!(
        flush_range().to_string(),
        "Flush global len=64 id=0x14 stag=0x12345678 to=0x1000"
    );
    assert_eq!(
        flush_region().to_string(),
        "Flush global region id=0x15 stag=0x12345678 to=0x1000"
    );
}

/// One bit at a time, as in RFC 7306 §5.1.
fn add_bit_by_bit(original: u64, add: u64, mask: u64) -> u64 {
    let (mut carry, mut result) = (0, 0);
    for bit in 0..64 {
        let sum = carry + (original >> bit & 1) + (add >> bit & 1);
        result |= (sum & 1) << bit;
        carry = (sum >> 1) & !(mask >> bit) & 1;
    }
    result
}

proptest! {
    #[test]
    fn masked_add_agrees_with_the_reference(original: u64, add: u64, mask: u64) {
        let got = AtomicOp::FetchAdd { add, mask }.apply(original);
        prop_assert_eq!(got, add_bit_by_bit(original, add, mask));
    }

    #[test]
    fn plain_add_wraps(original: u64, add: u64) {
        let got = AtomicOp::FetchAdd { add, mask: 0 }.apply(original);
        prop_assert_eq!(got, original.wrapping_add(add));
    }

    #[test]
    fn swap_happens_only_on_equality(original: u64, swap: u64, compare: u64, masks: [u64; 2]) {
        let [swap_mask, compare_mask] = masks;
        let got = AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask }.apply(original);
        if original & compare_mask == compare & compare_mask {
            prop_assert_eq!(got & swap_mask, swap & swap_mask);
            prop_assert_eq!(got & !swap_mask, original & !swap_mask);
        } else {
            prop_assert_eq!(got, original);
        }
    }

    #[test]
    fn round_trip(id: u32, stag: u32, to: u64, words: [u64; 4], add: bool) {
        let [swap, swap_mask, compare, compare_mask] = words;
        let op = if add {
            AtomicOp::FetchAdd { add: swap, mask: swap_mask }
        } else {
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask }
        };
        let request = AtomicRequest { op, id, stag: Stag::new(stag), to: To::new(to) };
        prop_assert_eq!(AtomicRequest::parse(&request.emit()), Ok(request));
        let response = AtomicResponse { id, original: swap };
        prop_assert_eq!(AtomicResponse::parse(&response.emit()), Ok(response));
    }
}
