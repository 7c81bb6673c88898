//! Tests of proofs: only a side that has the key is accepted.

use verbena_wire::ext::QpType;
use verbena_wire::number::Qpn;

use super::*;

const ONE: &[u8] = b"one of our keys, long enough";
const TWO: &[u8] = b"two of our keys, long enough";

fn keys<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> Keys {
    let all = all.into_iter().map(|key| Key::new(key).unwrap());
    all.collect::<Vec<_>>().into()
}

fn call(nonce: u64) -> DialRequest {
    DialRequest {
        qp_type: QpType::Rc,
        from: Qpn::new(1).unwrap(),
        to: Qpn::new(2).unwrap(),
        gid: [7; 16],
        nonce,
        proof: NO_PROOF,
    }
}

#[test]
fn proof_needs_the_same_key() {
    let (key, other) = (Some(ONE), Some(TWO));
    for (mine, theirs, believed) in [
        (None, None, true),
        (key, key, true),
        (key, other, false),
        (key, None, false),
        (None, key, false),
    ] {
        let (mine, theirs) = (keys(mine), keys(theirs));
        let signed = sign_call(mine.first(), call(3));
        assert_eq!(call_proven_by(&theirs, &signed).is_some(), believed);
        let answer = sign_answer(theirs.first(), &signed, 9);
        assert_eq!(
            answer_proven_by(&mine, &signed, &answer).is_some(),
            believed
        );
    }
}

#[test]
fn proof_matches_one_of_several_keys() {
    let (old, both) = (keys([ONE]), keys([TWO, ONE]));
    let signed = sign_call(old.first(), call(3));
    let found = call_proven_by(&both, &signed).unwrap();
    assert_eq!(found, old.first());
    let answer = sign_answer(found, &signed, 9);
    assert!(answer_proven_by(&old, &signed, &answer).is_some());
    let request = sign_request(old.first().unwrap(), 5, b"hello");
    let found = request_proven_by(&both, &request, b"hello").unwrap();
    let reply = sign_reply(found, 5, 6, b"welcome");
    assert!(reply_proven_by(&old, 5, &reply, b"welcome").is_some());
}

#[test]
fn proof_covers_private_data_and_nonce() {
    let (ours, none) = (keys([ONE]), keys(None));
    let key = ours.first().unwrap();
    let request = sign_request(key, 5, b"hello");
    assert_eq!(request_proven_by(&ours, &request, b"hello"), Some(key));
    assert_eq!(request_proven_by(&ours, &request, b"hullo"), None);
    assert_eq!(request_proven_by(&keys([TWO]), &request, b"hello"), None);
    assert_eq!(request_proven_by(&none, &request, b"hello"), None);
    let other = KeyProof {
        nonce: 6,
        ..request
    };
    assert_eq!(request_proven_by(&ours, &other, b"hello"), None);
    let reply = sign_reply(key, 5, 9, b"welcome");
    assert_eq!(reply_proven_by(&ours, 5, &reply, b"welcome"), Some(key));
    assert_eq!(reply_proven_by(&ours, 6, &reply, b"welcome"), None);
    assert_eq!(reply_proven_by(&ours, 5, &reply, b"go away"), None);
    // A Request's proof is not valid for a Reply, nor the other way round; without a key nothing is proven.
    assert_eq!(reply_proven_by(&ours, 5, &request, b"hello"), None);
    let nothing = KeyProof {
        nonce: 5,
        proof: NO_PROOF,
    };
    assert_eq!(request_proven_by(&none, &nothing, b"hello"), None);
    assert_ne!(first_frame_nonce(key, 5, 9), first_frame_nonce(key, 5, 10));
}

#[test]
fn proof_covers_every_byte_of_a_call() {
    let keys = keys([ONE]);
    let key = keys.first();
    let signed = sign_call(key, call(3));
    for at in 0..DialRequest::COVERED_LEN {
        let mut bytes = signed.emit();
        bytes[at] ^= 1;
        if let Ok(other) = DialRequest::parse(&bytes) {
            // Reserved bytes are ignored, so a change in them does not matter.
            let same = DialRequest {
                proof: NO_PROOF,
                ..other
            } == call(3);
            assert_eq!(call_proven_by(&keys, &other).is_some(), same, "byte {at}");
        }
    }
    let answer = sign_answer(key, &signed, 9);
    assert!(answer_proven_by(&keys, &sign_call(key, call(4)), &answer).is_none());
    assert_ne!(
        caller_nonce(key, &signed, 9),
        caller_nonce(key, &signed, 10)
    );
    assert_eq!(caller_nonce(None, &signed, 9), 3);
}
