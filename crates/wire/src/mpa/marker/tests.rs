//! Markers both ways, the two ignored bits, and short input.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

#[test]
fn figure_6_points_back_twenty_bytes() {
    // RFC 5044 figure 6.
    let marker = Marker { fpdu_ptr: 0x14 };
    assert_eq!(marker.emit().as_slice(), hex("00000014"));
    assert_eq!(Marker::parse(&hex("00000014 ffff")), Ok(marker));
    assert_eq!(marker.to_string(), "Marker fpdu_ptr=20");
}

#[test]
fn reserved_half_and_low_bits_are_ignored() {
    let bytes = hex("000001fc");
    ignores_bits(&bytes, &[(0, 0xff), (1, 0xff), (3, 0x03)], Marker::parse);
    refuses_every_prefix(&bytes, Marker::parse);
}

#[test]
fn low_bits_are_never_sent() {
    assert_eq!(Marker { fpdu_ptr: 0xffff }.emit(), [0, 0, 0xff, 0xfc]);
}

proptest! {
    #[test]
    fn round_trip(word in 0u16..=0x3fff) {
        let marker = Marker { fpdu_ptr: word << 2 };
        prop_assert_eq!(Marker::parse(&marker.emit()), Ok(marker));
    }
}
