//! The enhanced block both ways: every model bit on its own, depth limits, short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

fn depth(value: u16) -> Depth {
    Depth::new(value).expect("14 bits")
}

#[test]
fn each_bit_has_its_place() {
    let plain = Enhanced {
        ird: depth(0),
        ord: depth(0),
        peer_to_peer: false,
        rtr: RtrKinds::default(),
    };
    let kinds = |send, write, read| RtrKinds { send, write, read };
    let cases = [
        ("00000000", plain),
        (
            "80000000",
            Enhanced {
                peer_to_peer: true,
                ..plain
            },
        ),
        (
            "40000000",
            Enhanced {
                rtr: kinds(true, false, false),
                ..plain
            },
        ),
        (
            "00008000",
            Enhanced {
                rtr: kinds(false, true, false),
                ..plain
            },
        ),
        (
            "00004000",
            Enhanced {
                rtr: kinds(false, false, true),
                ..plain
            },
        ),
        (
            "3fff0000",
            Enhanced {
                ird: Depth::NOT_NEGOTIATED,
                ..plain
            },
        ),
        (
            "00003fff",
            Enhanced {
                ord: Depth::NOT_NEGOTIATED,
                ..plain
            },
        ),
    ];
    for (bytes, block) in cases {
        assert_eq!(Enhanced::parse(&hex(bytes)), Ok(block));
        assert_eq!(block.emit().as_slice(), hex(bytes));
    }
}

#[test]
fn depths_end_at_fourteen_bits() {
    assert_eq!(Depth::new(0x3fff), Some(Depth::NOT_NEGOTIATED));
    assert_eq!(Depth::new(0x4000), None);
    assert!(depth(0x3ffe).is_negotiated() && !Depth::NOT_NEGOTIATED.is_negotiated());
    assert_eq!(depth(128).get(), 128);
}

#[test]
fn prints_depths_and_rtr_kinds() {
    let block = Enhanced::parse(&hex("8080c080")).expect("a block");
    assert_eq!(block.to_string(), "ird=128 ord=128 rtr=write+read");
    let block = Enhanced::parse(&hex("3fff0001")).expect("a block");
    assert_eq!(block.to_string(), "ird=any ord=1");
    assert_eq!(RtrKinds::default().to_string(), "none");
}

#[test]
fn short_input_is_refused() {
    refuses_every_prefix(&hex("8080c080"), Enhanced::parse);
}

proptest! {
    /// All 32 bits have a meaning, so any bytes are written back unchanged.
    #[test]
    fn any_four_bytes_round_trip(bytes in any::<[u8; 4]>()) {
        let block = Enhanced::parse(&bytes).expect("any four bytes");
        prop_assert_eq!(block.emit(), bytes);
    }
}
