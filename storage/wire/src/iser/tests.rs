//! iSER headers, Hello and HelloReply: golden bytes, errors, and random bytes.

use proptest::prelude::*;
use verbena_wire::testing::{hex, ignores_bits, refuses_every_prefix};

use super::*;

const BOTH: &str = "1c000000 04050607 08090a0b 0c0d0e0f 10111213 14151617 18191a1b";

fn both() -> IserHeader {
    IserHeader {
        write: Some((Stag::new(0x0405_0607), 0x0809_0a0b_0c0d_0e0f)),
        read: Some((Stag::new(0x1011_1213), 0x1415_1617_1819_1a1b)),
    }
}

#[test]
fn control_header_parses_and_emits_exactly() {
    let bytes = hex(BOTH);
    assert_eq!(IserHeader::parse(&bytes), Ok(both()));
    assert_eq!(both().emit()[..], bytes);
    refuses_every_prefix(&bytes, IserHeader::parse);
    ignores_bits(
        &bytes,
        &[(0, 0x03), (1, 0xff), (2, 0xff), (3, 0xff)],
        IserHeader::parse,
    );
    // A tag is returned only with its valid bit.
    let without = |first: &str| hex(&BOTH.replacen("1c", first, 1));
    let write = IserHeader {
        read: None,
        ..both()
    };
    let read = IserHeader {
        write: None,
        ..both()
    };
    assert_eq!(IserHeader::parse(&without("18")), Ok(write));
    assert_eq!(IserHeader::parse(&without("14")), Ok(read));
    let none = IserHeader::default();
    assert_eq!(IserHeader::parse(&without("10")), Ok(none));
    assert_eq!(none.emit()[..], hex(&format!("10{}", "00".repeat(27))));
    assert_eq!(
        both().to_string(),
        "iSER control write=0x04050607+0x8090a0b0c0d0e0f read=0x10111213+0x1415161718191a1b"
    );
}

#[test]
fn hello_messages_parse_and_emit_exactly() {
    let rest = "00".repeat(24);
    let hello = Hello {
        version_max: VERSION,
        version_min: 9,
        ird: 0x0102,
    };
    let bytes = hex(&format!("20a90102 {rest}"));
    assert_eq!(Hello::parse(&bytes), Ok(hello));
    assert_eq!(hello.emit()[..], bytes);
    assert_eq!(hello.to_string(), "iSER Hello versions=9..=10 ird=258");
    refuses_every_prefix(&bytes, Hello::parse);

    let reply = HelloReply {
        rejected: true,
        version_max: 11,
        version: VERSION,
        ord: 0x0304,
    };
    let bytes = hex(&format!("31ba0304 {rest}"));
    assert_eq!(HelloReply::parse(&bytes), Ok(reply));
    assert_eq!(reply.emit()[..], bytes);
    assert_eq!(
        reply.to_string(),
        "iSER HelloReply version=10 max=11 ord=772 rejected"
    );
    refuses_every_prefix(&bytes, HelloReply::parse);
}

#[test]
fn other_opcodes_are_refused() {
    for first in 0..=u8::MAX {
        let mut bytes = hex(BOTH);
        bytes[0] = first;
        let got = first >> 4;
        let parsed = IserMessage::parse(&bytes);
        match got {
            1 => assert!(matches!(parsed, Ok(IserMessage::Control(_)))),
            2 => assert!(matches!(parsed, Ok(IserMessage::Hello(_)))),
            3 => assert!(matches!(parsed, Ok(IserMessage::HelloReply(_)))),
            _ => assert_eq!(parsed, Err(Malformed::IserOpcode { got })),
        }
        if let Ok(opening) = parsed {
            assert_eq!(IserMessage::parse(&opening.emit()), parsed);
        }
    }
    let hello = Hello::parse(&hex(BOTH));
    assert_eq!(hello, Err(Malformed::IserOpcode { got: 1 }));
}

#[test]
fn private_data_flags_parse_and_emit_exactly() {
    for (first, zero_based, invalidate) in [
        (0x00, true, true),
        (0x40, true, false),
        (0x80, false, true),
        (0xc0, false, false),
    ] {
        let data = PrivateData {
            zero_based,
            invalidate,
        };
        assert_eq!(data.emit(), [first, 0, 0, 0]);
        assert_eq!(PrivateData::parse(&[first, 0, 0, 0, 9]), Ok(data));
    }
    refuses_every_prefix(&[0; 4], PrivateData::parse);
}

proptest! {
    #[test]
    fn round_trip(write: Option<(u32, u64)>, read: Option<(u32, u64)>) {
        let buffer = |buffer: Option<(u32, u64)>| buffer.map(|(stag, base)| (Stag::new(stag), base));
        let header = IserHeader { write: buffer(write), read: buffer(read) };
        prop_assert_eq!(IserHeader::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(opening) = IserMessage::parse(&bytes) {
            prop_assert_eq!(IserMessage::parse(&opening.emit()), Ok(opening));
        }
        let _ = PrivateData::parse(&bytes);
    }
}
