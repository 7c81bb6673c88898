//! The header of management datagrams both ways, other classes and versions, short input.

use super::*;
use crate::testing::{hex, refuses_every_prefix};

const BYTES: &str = "01070203 0000 0000 0000000280b22d03 0010 0000 00000000";

#[test]
fn parses_and_emits_exact_bytes() {
    let header = MadHeader {
        transaction: 0x2_80b2_2d03,
        attribute: 0x10,
    };
    assert_eq!(MadHeader::parse(&hex(BYTES)), Ok(header));
    assert_eq!(header.emit().as_slice(), hex(BYTES));
    refuses_every_prefix(&hex(BYTES), MadHeader::parse);
    assert_eq!(header.to_string(), "MAD attribute=0x0010 tid=0x280b22d03");
}

#[test]
fn other_classes_and_versions_are_refused() {
    for at in 0..4 {
        let mut bytes = hex(BYTES);
        bytes[at] ^= 0x40;
        let got = MadHeader::parse(&bytes);
        assert!(matches!(got, Err(Malformed::Mad { .. })), "{at}: {got:?}");
    }
}
