//! The acknowledgement header: every syndrome, the reserved ones, short input.

use super::*;
use crate::testing::{hex, refuses_every_prefix};

#[test]
fn parses_and_emits_exact_bytes() {
    for (bytes, syndrome, words) in [
        ("1f000001", Syndrome::ACK, "AETH ACK msn=1"),
        (
            "05ffffff",
            Syndrome::Ack { credits: 5 },
            "AETH ACK credits=5 msn=16777215",
        ),
        (
            "2c000002",
            Syndrome::RnrNak(RnrTimer::DEFAULT),
            "AETH RNR NAK timer=12 msn=2",
        ),
        (
            "60000000",
            Syndrome::Nak(Nak::PsnSequence),
            "AETH NAK PSN sequence error msn=0",
        ),
        (
            "62000007",
            Syndrome::Nak(Nak::RemoteAccess),
            "AETH NAK remote access error msn=7",
        ),
    ] {
        let bytes = hex(bytes);
        let aeth = Aeth::parse(&bytes).unwrap();
        assert_eq!(aeth.syndrome, syndrome);
        assert_eq!(aeth.emit().as_slice(), bytes);
        assert_eq!(aeth.to_string(), words);
        refuses_every_prefix(&bytes, Aeth::parse);
    }
}

#[test]
fn every_syndrome_round_trips_or_is_reserved() {
    for got in 0..=u8::MAX {
        let bytes = [got, 0, 0, 9];
        let defined = matches!(got, 0..=0x3f | 0x60..=0x64);
        match Aeth::parse(&bytes) {
            Ok(aeth) => assert_eq!((aeth.emit(), defined), (bytes, true)),
            Err(error) => assert_eq!((error, defined), (Malformed::Syndrome { got }, false)),
        }
    }
}
