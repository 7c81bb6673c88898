//! What a hostile peer can send instead of a startup frame, one named test each.

use verbena_wire::mpa::startup::StartupError;

use super::*;

fn refused(endpoint: Endpoint) -> Failure {
    assert_eq!(endpoint.state(), State::Failed);
    match endpoint.into_outcome() {
        Some(Outcome::Failed { reason, .. }) => reason,
        other => panic!("fails: {other:?}"),
    }
}

fn responder_refuses(bytes: &[u8]) -> Failure {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(bytes);
    assert!(b.poll_transmit().is_empty(), "never answered");
    refused(b)
}

fn request(flags: u8, revision: u8, length: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"MPA ID Req Frame".to_vec();
    bytes.extend([flags, revision]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn wrong_key_is_refused_at_first_wrong_byte() {
    let good = request(0x40, 1, 0, b"");
    for at in 0..16 {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        let failure = responder_refuses(&bad[..=at]);
        assert!(matches!(failure, Failure::Frame(_)), "byte {at}");
    }
    assert!(matches!(
        responder_refuses(b"GET / HTTP/1.1"),
        Failure::Frame(_)
    ));
}

#[test]
fn frame_of_wrong_kind_is_refused() {
    let failure = responder_refuses(b"MPA ID Rep Frame\x40\x01\0\0");
    assert!(matches!(
        failure,
        Failure::Frame(StartupError::WrongKind { .. })
    ));
    let mut a = Endpoint::initiator(Terms::default(), b"", NOW).unwrap();
    a.handle_bytes(&request(0x40, 1, 0, b""));
    assert!(matches!(
        refused(a),
        Failure::Frame(StartupError::WrongKind { .. })
    ));
}

#[test]
fn unknown_revisions_are_refused() {
    for revision in [0, 3, 0x81, 0xff] {
        let failure = responder_refuses(&request(0x40, revision, 0, b""));
        let expected = StartupError::Revision { got: revision };
        assert_eq!(failure, Failure::Frame(expected));
    }
}

#[test]
fn private_data_beyond_512_bytes_is_refused() {
    for length in [513, 0x8000, u16::MAX] {
        let failure = responder_refuses(&request(0x40, 1, length, b""));
        let expected = matches!(
            failure,
            Failure::Frame(StartupError::PrivateDataTooLong { .. })
        );
        assert!(expected, "{length}: refused before a byte of it was read");
    }
}

#[test]
fn overstated_length_waits_for_the_deadline() {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(&request(0x40, 1, 100, &[0; 99]));
    assert_eq!(b.state(), State::AwaitRequest);
    b.handle_timeout(b.deadline().unwrap());
    assert_eq!(refused(b), Failure::Timeout);
}

#[test]
fn understated_length_leaves_early_bytes() {
    let failure = responder_refuses(&request(0x40, 1, 3, b"four"));
    assert_eq!(failure, Failure::EarlyBytes(1));
}

#[test]
fn bytes_before_the_reply_are_refused() {
    // RFC 5044 §7.1.2: in the same read, and in the next one.
    let mut bytes = request(0x40, 1, 0, b"");
    bytes.extend([0; 20]);
    assert_eq!(responder_refuses(&bytes), Failure::EarlyBytes(20));
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(&request(0x40, 1, 0, b""));
    b.handle_bytes(b"x");
    assert_eq!(refused(b), Failure::EarlyBytes(1));
}

#[test]
fn missing_enhanced_block_is_refused() {
    for length in 0..4 {
        let failure = responder_refuses(&request(0x50, 2, length, &[0; 3]));
        let cut = matches!(
            failure,
            Failure::Frame(StartupError::EnhancedTruncated { .. })
        );
        assert!(cut, "{length}");
    }
}

#[test]
fn every_reserved_bit_is_ignored() {
    for bits in 0..16 {
        let mut b = Endpoint::responder(standard(), NOW);
        b.handle_bytes(&request(0x40 | bits, 1, 0, b""));
        assert_eq!(b.state(), State::Deciding, "{bits:#x}");
        b.accept(1, 1, b"").unwrap();
        assert_eq!(b.poll_transmit()[16], 0x40, "and never echoed");
    }
}

#[test]
fn request_in_single_bytes_is_accepted() {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    for byte in request(0x40, 1, 512, &[9; 512]) {
        assert_eq!(b.state(), State::AwaitRequest);
        assert_eq!(b.handle_bytes(&[byte]), 1);
    }
    assert_eq!(b.state(), State::Deciding);
}

#[test]
fn trickled_bytes_do_not_extend_the_deadline() {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    let deadline = b.deadline().unwrap();
    for byte in request(0x40, 1, 512, &[9; 511]) {
        b.handle_bytes(&[byte]);
        // Progress does not extend the deadline.
        assert_eq!(b.deadline(), Some(deadline));
    }
    b.handle_timeout(deadline);
    assert_eq!(refused(b), Failure::Timeout);
}

#[test]
fn an_undecided_request_times_out_too() {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(&request(0x40, 1, 0, b""));
    b.handle_timeout(b.deadline().unwrap());
    assert_eq!(refused(b), Failure::Timeout);
}
