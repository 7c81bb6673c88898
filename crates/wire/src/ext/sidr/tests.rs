//! Inquiries both ways, truncated, and damaged.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

fn accepted() -> SidrMessage<'static> {
    SidrMessage {
        transaction: 0x0102_0304_0506_0708,
        kind: SidrKind::Accepted {
            number: Qpn::new(0x4e_2001).unwrap(),
            qkey: 0x0123_4567,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
        },
        private_data: b"hi",
    }
}

#[test]
fn answer_parses_and_emits_exactly() {
    let mut bytes = hex("56624951 01 02 00 02 0102030405060708 004e2001 01234567");
    bytes.extend(hex("00000000000000000000ffff7f000001 6869"));
    bytes.resize(296, 0);
    assert_eq!(accepted().emit().as_slice(), bytes);
    assert_eq!(SidrMessage::parse(&bytes), Ok(accepted()));
    refuses_every_prefix(&bytes, |cut| {
        SidrMessage::parse(cut).map(|one| one.transaction)
    });
    let said = "SIDR request 0x102030405060708: queue pair 0x4e2001, key 0x1234567";
    assert_eq!(accepted().to_string(), said);
}

#[test]
fn every_matter_round_trips() {
    let longest = [7; MAX_SIDR_PRIVATE_DATA];
    for matter in [
        SidrKind::Request,
        SidrKind::Pending,
        SidrKind::Refused,
        accepted().kind,
    ] {
        for private_data in [&[][..], &longest] {
            let one = SidrMessage {
                transaction: u64::MAX,
                kind: matter,
                private_data,
            };
            assert_eq!(SidrMessage::parse(&one.emit()), Ok(one));
            assert!(!one.to_string().is_empty());
        }
    }
}

#[test]
fn overlong_private_data_is_truncated() {
    let long = [9; 300];
    let one = SidrMessage {
        private_data: &long,
        ..accepted()
    };
    let bytes = one.emit();
    assert_eq!(
        SidrMessage::parse(&bytes).unwrap().private_data,
        &long[..255]
    );
}

#[test]
fn invalid_messages_are_refused() {
    let good = accepted().emit();
    for (at, byte) in [(0, b'v'), (4, 0), (4, 2), (5, 4), (16, 1)] {
        let mut bad = good;
        bad[at] = byte;
        let wrong = Malformed::Dial { what: "inquiry" };
        assert_eq!(SidrMessage::parse(&bad), Err(wrong), "byte {at}");
    }
    let mut long = good.to_vec();
    long.push(0);
    assert!(SidrMessage::parse(&long).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = SidrMessage::parse(&bytes);
    }

    #[test]
    fn parsed_fields_round_trip(tail in proptest::collection::vec(any::<u8>(), 291)) {
        let mut bytes = hex("56624951 01");
        bytes.extend(tail);
        if let Ok(one) = SidrMessage::parse(&bytes) {
            let again = one.emit();
            prop_assert_eq!(SidrMessage::parse(&again), Ok(one));
        }
    }
}
