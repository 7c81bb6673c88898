//! The texts: each names what is wrong and with which numbers.

use super::*;

#[test]
fn errors_display_the_expected_text() {
    let cases = [
        (
            Malformed::Truncated {
                what: "read request",
                need: 28,
                got: 3,
            },
            "read request needs 28 bytes, only 3 are there",
        ),
        (
            Malformed::DdpVersion {
                tagged: false,
                got: 3,
            },
            "DDP version 3 in an untagged segment, expected 1",
        ),
        (
            Malformed::DdpClass {
                expected_tagged: true,
            },
            "a tagged DDP header expected, the T bit does not match",
        ),
        (
            Malformed::UdOpcode { got: 4 },
            "BTH opcode 0x04 is not an unreliable datagram",
        ),
        (
            Malformed::CapsLength {
                tag: 2,
                need: 2,
                got: 5,
            },
            "capability 2 takes 2 bytes, got 5",
        ),
    ];
    for (error, sentence) in cases {
        assert_eq!(error.to_string(), sentence);
    }
}
