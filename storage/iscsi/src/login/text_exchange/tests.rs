//! Text that spans PDUs in both directions, and its limits.

use proptest::prelude::*;

use super::*;

#[test]
fn long_text_waits_for_answers_between_pdus() {
    let text: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    let mut exchange = TextExchange::default();
    exchange.set_text(text.clone());
    let mut sent = Vec::new();
    for more in [true, true, false] {
        let (chunk, goes_on) = exchange.chunk();
        assert_eq!((goes_on, exchange.is_last()), (more, !more));
        assert_eq!(exchange.chunk().0, chunk, "asking twice changes nothing");
        sent.extend_from_slice(chunk);
        assert_eq!(exchange.receive(false, b"").unwrap().is_some(), !more);
    }
    assert_eq!(sent, text);
    assert_eq!(exchange.chunk(), (&b""[..], false));
}

/// A text of exactly one PDU does not set the C bit.
#[test]
fn text_of_one_full_pdu_is_last() {
    let mut exchange = TextExchange::default();
    exchange.set_text(vec![1; MAX_CHUNK]);
    assert!(exchange.is_last());
    exchange.set_text(vec![1; MAX_CHUNK + 1]);
    assert!(!exchange.is_last());
}

#[test]
fn text_during_our_continuation_is_refused() {
    for (more, data) in [(true, &b""[..]), (false, b"A=1\0")] {
        let mut exchange = TextExchange::default();
        exchange.set_text(vec![1; MAX_CHUNK + 1]);
        assert_eq!(exchange.receive(more, data), Err(LoginError::Interrupted));
    }
}

#[test]
fn no_text_is_sent_during_target_continuation() {
    let mut exchange = TextExchange::default();
    exchange.set_text(b"A=1\0".to_vec());
    assert_eq!(exchange.receive(true, b"B="), Ok(None));
    assert_eq!(
        (exchange.chunk(), exchange.is_last()),
        ((&b""[..], false), false)
    );
    assert_eq!(exchange.receive(false, b"2\0"), Ok(Some(b"B=2\0".to_vec())));
    assert!(exchange.is_last());
}

#[test]
fn text_bytes_and_exchanges_are_limited() {
    let mut exchange = TextExchange::default();
    assert_eq!(exchange.receive(true, &[1; MAX_TEXT]), Ok(None));
    let limit = MAX_TEXT;
    assert_eq!(
        exchange.receive(false, &[1]),
        Err(LoginError::TooMuchText { limit })
    );
    let mut exchange = TextExchange::default();
    for _ in 0..MAX_EXCHANGES {
        exchange.receive(true, b"").unwrap();
    }
    let limit = MAX_EXCHANGES;
    assert_eq!(
        exchange.receive(true, b""),
        Err(LoginError::TooLong { limit })
    );
}

proptest! {
    #[test]
    fn split_text_is_reassembled(text: Vec<u8>, cuts in prop::collection::vec(0usize..100, 0..20)) {
        let mut exchange = TextExchange::default();
        let mut rest = &text[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            prop_assert_eq!(exchange.receive(true, piece), Ok(None));
            rest = behind;
        }
        prop_assert_eq!(exchange.receive(false, rest), Ok(Some(text.clone())));
    }
}
