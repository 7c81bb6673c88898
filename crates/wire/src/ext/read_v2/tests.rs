//! The Read V2 Request header both ways and truncated.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

#[test]
fn parses_and_emits_exact_bytes() {
    let bytes = hex("00001000 12345678 00007f0000002000");
    let request = ReadV2Request {
        size: 0x1000,
        source_stag: Stag::new(0x1234_5678),
        source_to: To::new(0x7f00_0000_2000),
    };
    assert_eq!(ReadV2Request::parse(&bytes), Ok(request));
    assert_eq!(request.emit().as_slice(), bytes);
    refuses_every_prefix(&bytes, ReadV2Request::parse);
    assert_eq!(
        request.to_string(),
        "read v2 size=4096 source=0x12345678+0x7f0000002000"
    );
}

proptest! {
    #[test]
    fn any_header_bytes_round_trip(bytes in any::<[u8; 16]>()) {
        let request = ReadV2Request::parse(&bytes).expect("any 16 bytes");
        prop_assert_eq!(request.emit(), bytes);
    }
}
