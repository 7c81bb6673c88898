//! The Read Request header both ways, and what is left of one that was partly answered.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

const BYTES: &str = "0000aa01 00007f0000002000 00000010 12345678 0000000000001000";

fn request() -> ReadRequest {
    ReadRequest {
        sink_stag: Stag::new(0xaa01),
        sink_to: To::new(0x7f00_0000_2000),
        size: 16,
        source_stag: Stag::new(0x1234_5678),
        source_to: To::new(0x1000),
    }
}

#[test]
fn parses_and_emits_exact_bytes() {
    assert_eq!(ReadRequest::parse(&hex(BYTES)), Ok(request()));
    assert_eq!(request().emit().as_slice(), hex(BYTES));
    refuses_every_prefix(&hex(BYTES), ReadRequest::parse);
}

#[test]
fn advances_by_what_was_answered() {
    // RFC 5040 §7.1.
    let rest = request().advanced(10).expect("ten of sixteen");
    assert_eq!(rest.size, 6);
    assert_eq!(rest.sink_to, To::new(0x7f00_0000_200a));
    assert_eq!(rest.source_to, To::new(0x100a));
    assert_eq!(
        (rest.sink_stag, rest.source_stag),
        (Stag::new(0xaa01), Stag::new(0x1234_5678))
    );
    assert_eq!(request().advanced(0), Some(request()));
    assert_eq!(request().advanced(17), None);
    let edge = ReadRequest {
        sink_to: To::new(u64::MAX - 3),
        ..request()
    };
    assert!(edge.advanced(3).is_some());
    assert_eq!(edge.advanced(4), None);
}

#[test]
fn prints_one_line() {
    assert_eq!(
        request().to_string(),
        "read size=16 source=0x12345678+0x1000 sink=0x0000aa01+0x7f0000002000"
    );
}

proptest! {
    #[test]
    fn any_header_bytes_round_trip(bytes in any::<[u8; 28]>()) {
        let request = ReadRequest::parse(&bytes).expect("any 28 bytes");
        prop_assert_eq!(request.emit(), bytes);
    }
}
