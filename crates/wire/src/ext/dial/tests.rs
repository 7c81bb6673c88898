//! Calls, answers and refusals both ways, truncated, and damaged.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, refuses_every_prefix};

fn request() -> DialRequest {
    DialRequest {
        qp_type: QpType::Uc,
        from: Qpn::new(0x4e_2001).unwrap(),
        to: Qpn::new(0x4e_21ff).unwrap(),
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
        nonce: 0x0102_0304_0506_0708,
        proof: [0xee; 32],
    }
}

#[test]
fn call_parses_and_emits_exactly() {
    let mut bytes = hex("56625150 01 01 0000 004e2001 004e21ff");
    bytes.extend(hex("00000000000000000000ffff7f000001 0102030405060708"));
    bytes.extend([0xee; 32]);
    assert_eq!(request().emit().as_slice(), bytes);
    assert_eq!(DialRequest::parse(&bytes), Ok(request()));
    refuses_every_prefix(&bytes, DialRequest::parse);
    assert_eq!(
        request().to_string(),
        "uc queue pair 0x4e2001 connects to 0x4e21ff"
    );
}

#[test]
fn answer_parses_and_emits_exactly() {
    let answer = DialReply {
        nonce: 7,
        proof: NO_PROOF,
    };
    let mut bytes = hex("56625150 01 00 0000 0000000000000007");
    bytes.extend([0; 32]);
    assert_eq!(answer.emit().as_slice(), bytes);
    assert_eq!(DialReply::parse(&bytes), Ok(answer));
    refuses_every_prefix(&bytes, DialReply::parse);
}

#[test]
fn every_refusal_round_trips() {
    for reason in DialReject::ALL {
        let bytes = reason.emit();
        assert_eq!(DialReject::parse(&bytes), Ok(reason));
        refuses_every_prefix(&bytes, DialReject::parse);
        assert!(!reason.to_string().is_empty());
    }
    assert_eq!(
        DialReject::Unknown.emit().as_slice(),
        hex("56625150 01 01 0000")
    );
}

#[test]
fn proof_precedes_the_private_data() {
    let keyed = KeyProof {
        nonce: 0x0102_0304_0506_0708,
        proof: [9; 32],
    };
    let bytes = [&keyed.emit()[..], b"the program's"].concat();
    assert_eq!(
        &bytes[..16],
        b"VbKy\x01\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08"
    );
    assert_eq!(KeyProof::parse(&bytes), Ok((keyed, &b"the program's"[..])));
    assert_eq!(KeyProof::parse(&bytes[..48]), Ok((keyed, &b""[..])));
    assert!(KeyProof::parse(&bytes[..47]).is_err());
    for at in [0, 4] {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert!(KeyProof::parse(&other).is_err(), "byte {at}");
    }
}

#[test]
fn invalid_messages_are_refused() {
    let good = request().emit();
    for (at, byte) in [(0, b'v'), (4, 2), (5, 4), (8, 1), (12, 0xff)] {
        let mut bad = good;
        bad[at] = byte;
        let what = "connection request";
        assert_eq!(
            DialRequest::parse(&bad),
            Err(Malformed::Dial { what }),
            "byte {at}"
        );
    }
    let what = "rejection of a connection request";
    for code in [0, 8, 255] {
        let mut bad = DialReject::KeyMismatch.emit();
        bad[5] = code;
        assert_eq!(DialReject::parse(&bad), Err(Malformed::Dial { what }));
    }
    assert!(DialReply::parse(b"hello, this is an ordinary program's private data").is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = (DialRequest::parse(&bytes), DialReply::parse(&bytes), DialReject::parse(&bytes));
        let _ = KeyProof::parse(&bytes);
    }
}
