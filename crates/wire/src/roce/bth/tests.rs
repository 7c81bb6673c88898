//! The base transport header: every flag, reserved bits, version, short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

const BYTES: &str = "0430ffff 00000011 80000100";

fn send_only() -> Bth {
    Bth {
        opcode: 0x04,
        solicited: false,
        migration: false,
        pad: 3,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        dest_qpn: Qpn::wrapping(0x11),
        ack_request: true,
        psn: Psn::wrapping(0x100),
    }
}

#[test]
fn parses_and_emits_exact_bytes() {
    assert_eq!(Bth::parse(&hex(BYTES)), Ok(send_only()));
    assert_eq!(send_only().emit().as_slice(), hex(BYTES));
    refuses_every_prefix(&hex(BYTES), Bth::parse);
}

#[test]
fn each_flag_has_its_place() {
    let plain = send_only();
    let cases = [
        (
            "04b0ffff 00000011 80000100",
            Bth {
                solicited: true,
                ..plain
            },
        ),
        (
            "0470ffff 00000011 80000100",
            Bth {
                migration: true,
                ..plain
            },
        ),
        ("0400ffff 00000011 80000100", Bth { pad: 0, ..plain }),
        (
            "0430ffff 80000011 80000100",
            Bth {
                fecn: true,
                ..plain
            },
        ),
        (
            "0430ffff 40000011 80000100",
            Bth {
                becn: true,
                ..plain
            },
        ),
        (
            "0430ffff 00000011 00000100",
            Bth {
                ack_request: false,
                ..plain
            },
        ),
    ];
    for (bytes, bth) in cases {
        assert_eq!(Bth::parse(&hex(bytes)), Ok(bth));
        assert_eq!(bth.emit().as_slice(), hex(bytes));
    }
}

#[test]
fn reserved_bits_are_ignored_version_is_checked() {
    ignores_bits(&hex(BYTES), &[(4, 0x3f), (8, 0x7f)], Bth::parse);
    for got in 1..16 {
        let mut bytes = hex(BYTES);
        bytes[1] |= got;
        assert_eq!(Bth::parse(&bytes), Err(Malformed::BthVersion { got }));
    }
}

#[test]
fn prints_one_line() {
    assert_eq!(
        send_only().to_string(),
        "BTH opcode=0x04 qpn=0x000011 psn=0x000100 pkey=0xffff pad=3 ackreq"
    );
}

proptest! {
    #[test]
    fn round_trip(bytes in any::<[u8; 12]>()) {
        let mut bytes = bytes;
        bytes[1] &= 0xf0;
        bytes[4] &= 0xc0;
        bytes[8] &= 0x80;
        let bth = Bth::parse(&bytes).expect("version 0");
        prop_assert_eq!(bth.emit(), bytes);
    }
}
