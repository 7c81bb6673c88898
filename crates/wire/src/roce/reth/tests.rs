//! The RDMA header both ways, short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

#[test]
fn parses_and_emits_exact_bytes() {
    let bytes = hex("0000558c0f0e0d0c 00000a1b 00002710");
    let reth = Reth {
        va: To::new(0x558c_0f0e_0d0c),
        rkey: Stag::new(0xa1b),
        len: 10_000,
    };
    assert_eq!(Reth::parse(&bytes), Ok(reth));
    assert_eq!(reth.emit().as_slice(), bytes);
    refuses_every_prefix(&bytes, Reth::parse);
    let words = "RETH va=0x558c0f0e0d0c rkey=0x00000a1b len=10000";
    assert_eq!(reth.to_string(), words);
}

proptest! {
    #[test]
    fn round_trip(va: u64, rkey: u32, len: u32) {
        let reth = Reth { va: To::new(va), rkey: Stag::new(rkey), len };
        prop_assert_eq!(Reth::parse(&reth.emit()), Ok(reth));
    }
}
