//! The choice between the two headers by the T bit, before any other check.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};
use crate::{Mo, Msn, Qn, Stag, To};

fn write() -> Header {
    Header::from(Tagged {
        last: false,
        opcode: Opcode::Write,
        stag: Stag::new(7),
        to: To::new(8),
    })
}

fn send() -> Header {
    Header::from(Untagged {
        last: true,
        opcode: Opcode::Send,
        ulp: 0,
        qn: Qn::SEND,
        msn: Msn::FIRST,
        mo: Mo::ZERO,
    })
}

#[test]
fn first_byte_gives_header_length() {
    for first in 0..=u8::MAX {
        let want = if first & 0x80 != 0 { 14 } else { 18 };
        assert_eq!(peek_len(first), want);
    }
    assert_eq!((MIN_LEN, MAX_LEN), (14, 18));
}

#[test]
fn both_classes_parse_and_emit_exactly() {
    for (header, bytes) in [
        (write(), "8140 00000007 0000000000000008"),
        (send(), "4143 00000000 00000000 00000001 00000000"),
    ] {
        let emitted = header.emit();
        assert_eq!(&emitted[..], hex(bytes));
        assert_eq!(emitted.as_ref().len(), header.len());
        assert_eq!(emitted.to_string(), bytes.replace(' ', ""));
        assert_eq!(Header::parse(&emitted), Ok(header));
        assert_eq!(peek_len(emitted[0]), header.len());
        refuses_every_prefix(&emitted, Header::parse);
    }
}

#[test]
fn header_accessors_match_fields() {
    assert!(write().is_tagged() && !write().last());
    assert!(!send().is_tagged() && send().last());
    assert_eq!(
        (write().opcode(), send().opcode()),
        (Opcode::Write, Opcode::Send)
    );
    assert_eq!(send().to_string(), "Send qn=0 msn=1 mo=0 last");
}

#[test]
fn truncation_is_reported_before_versions() {
    // Both versions are wrong here, but the header is incomplete.
    for first in [0x80, 0x00] {
        let bytes = vec![first; 13];
        let Err(Malformed::Truncated { need, got, .. }) = Header::parse(&bytes) else {
            unreachable!("thirteen bytes are no header");
        };
        assert_eq!((need, got), (peek_len(first), 13));
    }
    let empty = Header::parse(&[]);
    assert!(matches!(
        empty,
        Err(Malformed::Truncated {
            need: 14,
            got: 0,
            ..
        })
    ));
}

proptest! {
    /// A parsed header emits the same bytes, but for reserved bits.
    #[test]
    fn parsed_header_emits_same_bytes(bytes in any::<[u8; 18]>()) {
        if let Ok(header) = Header::parse(&bytes) {
            let emitted = header.emit();
            prop_assert_eq!(Header::parse(&emitted), Ok(header));
            prop_assert_eq!(&emitted[2..], &bytes[2..header.len()]);
            prop_assert_eq!(emitted[0], bytes[0] & 0xc3);
        }
    }
}
