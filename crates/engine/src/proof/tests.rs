//! Tests of proofs: who knows the key is believed, and nobody else.

use verbena_wire::ext::QpType;
use verbena_wire::number::Qpn;

use super::*;

fn call(nonce: u64) -> Call {
    Call {
        qp_type: QpType::Rc,
        from: Qpn::new(1).unwrap(),
        to: Qpn::new(2).unwrap(),
        gid: [7; 16],
        nonce,
        proof: NO_PROOF,
    }
}

#[test]
fn who_knows_the_key_is_believed() {
    let (key, other) = (Key::new(b"secret"), Key::new(b"guess"));
    for (mine, theirs, believed) in [
        (None, None, true),
        (key.as_ref(), key.as_ref(), true),
        (key.as_ref(), other.as_ref(), false),
        (key.as_ref(), None, false),
        (None, key.as_ref(), false),
    ] {
        let signed = sign_call(mine, call(3));
        assert_eq!(is_call_proven(theirs, &signed), believed);
        let answer = sign_answer(theirs, &signed, 9);
        assert_eq!(is_answer_proven(mine, &signed, &answer), believed);
    }
}

#[test]
fn every_word_counts() {
    let key = Key::new(b"secret");
    let key = key.as_ref();
    let signed = sign_call(key, call(3));
    for at in 0..Call::PROVEN {
        let mut bytes = signed.emit();
        bytes[at] ^= 1;
        if let Ok(other) = Call::parse(&bytes) {
            // Reserved bytes are ignored, and so is a change in them.
            let same = Call {
                proof: NO_PROOF,
                ..other
            } == call(3);
            assert_eq!(is_call_proven(key, &other), same, "byte {at}");
        }
    }
    let answer = sign_answer(key, &signed, 9);
    assert!(!is_answer_proven(key, &sign_call(key, call(4)), &answer));
    assert_ne!(last_word(key, &signed, 9), last_word(key, &signed, 10));
    assert_eq!(last_word(None, &signed, 9), 3);
}
