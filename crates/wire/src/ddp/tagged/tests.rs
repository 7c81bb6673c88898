//! The tagged header both ways, with reserved bits, wrong versions and every short length.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

const BYTES: &str = "c140 12345678 0000000000001000";

fn write() -> Tagged {
    Tagged {
        last: true,
        opcode: Opcode::Write,
        stag: Stag::new(0x1234_5678),
        to: To::new(0x1000),
    }
}

#[test]
fn parses_and_emits_exact_bytes() {
    assert_eq!(Tagged::parse(&hex(BYTES)), Ok(write()));
    assert_eq!(write().emit().as_slice(), hex(BYTES));
    let more = Tagged {
        last: false,
        ..write()
    };
    assert_eq!(more.emit()[0], 0x81);
}

#[test]
fn reserved_bits_are_ignored() {
    // RFC 5041 §4.1 reserves four bits, RFC 5040 §4.1 two.
    ignores_bits(&hex(BYTES), &[(0, 0x3c), (1, 0x30)], Tagged::parse);
}

#[test]
fn short_input_is_refused() {
    refuses_every_prefix(&hex(BYTES), Tagged::parse);
    assert_eq!(
        Tagged::parse(&[0; 13]),
        Err(Malformed::Truncated {
            what: "tagged DDP header",
            need: 14,
            got: 13
        })
    );
}

#[test]
fn versions_and_class_are_checked_in_order() {
    let with = |ddp, rdmap| {
        let mut bytes = hex(BYTES);
        (bytes[0], bytes[1]) = (ddp, rdmap);
        Tagged::parse(&bytes)
    };
    for got in [0, 2, 3] {
        let tagged = true;
        assert_eq!(
            with(0xc0 | got, 0),
            Err(Malformed::DdpVersion { tagged, got })
        );
        assert_eq!(with(0xc1, got << 6), Err(Malformed::RdmapVersion { got }));
    }
    let expected_tagged = true;
    assert_eq!(
        with(0x41, 0x40),
        Err(Malformed::DdpClass { expected_tagged })
    );
}

#[test]
fn prints_one_line() {
    assert_eq!(write().to_string(), "Write stag=0x12345678 to=0x1000 last");
}

proptest! {
    #[test]
    fn round_trip(last: bool, code in 0..Opcode::ALL.len(), stag: u32, to: u64) {
        let opcode = Opcode::ALL[code];
        let header = Tagged { last, opcode, stag: Stag::new(stag), to: To::new(to) };
        prop_assert_eq!(Tagged::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
        let _ = Tagged::parse(&bytes);
    }
}
