//! The atomic header both ways, short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

#[test]
fn parses_and_emits_exact_bytes() {
    let bytes = hex("0000000000001000 00000102 0000000000000007 0000000000000003");
    let atomic = AtomicEth {
        va: To::new(0x1000),
        rkey: Stag::new(0x102),
        swap_or_add: 7,
        compare: 3,
    };
    assert_eq!(AtomicEth::parse(&bytes), Ok(atomic));
    assert_eq!(atomic.emit().as_slice(), bytes);
    refuses_every_prefix(&bytes, AtomicEth::parse);
    let words = "AtomicETH va=0x1000 rkey=0x00000102 swap_or_add=0x7 compare=0x3";
    assert_eq!(atomic.to_string(), words);
}

proptest! {
    #[test]
    fn round_trip(va: u64, rkey: u32, swap_or_add: u64, compare: u64) {
        let atomic = AtomicEth { va: To::new(va), rkey: Stag::new(rkey), swap_or_add, compare };
        prop_assert_eq!(AtomicEth::parse(&atomic.emit()), Ok(atomic));
    }
}
