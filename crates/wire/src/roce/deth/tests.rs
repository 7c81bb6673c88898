//! The datagram header both ways, its reserved byte, short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

#[test]
fn parses_and_emits_exact_bytes() {
    let bytes = hex("80010000 00000001");
    let deth = Deth {
        qkey: 0x8001_0000,
        src_qpn: Qpn::wrapping(1),
    };
    assert_eq!(Deth::parse(&bytes), Ok(deth));
    assert_eq!(deth.emit().as_slice(), bytes);
    ignores_bits(&bytes, &[(4, 0xff)], Deth::parse);
    refuses_every_prefix(&bytes, Deth::parse);
    assert_eq!(deth.to_string(), "DETH qkey=0x80010000 src=0x000001");
}

proptest! {
    #[test]
    fn round_trip(qkey: u32, qpn in 0u32..1 << 24) {
        let deth = Deth { qkey, src_qpn: Qpn::wrapping(qpn) };
        prop_assert_eq!(Deth::parse(&deth.emit()), Ok(deth));
    }
}
