//! Tests of MPA startup: the table, both roles, fallbacks, and invalid input of a peer.

mod hostile;

use core::time::Duration;

use verbena_wire::mpa::enhanced::RtrKinds;

use super::*;
use crate::testing::table;

const NOW: Time = Time::ZERO;

#[test]
fn the_table_of_states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next));
}

/// Runs a whole startup, in chunks of `chunk` bytes, and returns both outcomes.
fn startup(ours: Terms, theirs: Terms, chunk: usize) -> (Outcome, Outcome) {
    let (ird, ord) = (theirs.ird, theirs.ord);
    let mut a = Endpoint::initiator(ours, b"hello", NOW).unwrap();
    let mut b = Endpoint::responder(theirs, NOW);
    for piece in a.poll_transmit().chunks(chunk) {
        assert_eq!(b.handle_bytes(piece), piece.len());
    }
    assert_eq!(b.state(), State::Deciding);
    assert_eq!(b.proposal().unwrap().private_data, b"hello");
    b.accept(ird, ord, b"welcome").unwrap();
    for piece in b.poll_transmit().chunks(chunk) {
        assert_eq!(a.handle_bytes(piece), piece.len());
    }
    (a.into_outcome().unwrap(), b.into_outcome().unwrap())
}

fn agreed(ours: Terms, theirs: Terms) -> (Agreement, Agreement) {
    match startup(ours, theirs, 1000) {
        (Outcome::Established(a), Outcome::Established(b)) => (a, b),
        other => panic!("both agree: {other:?}"),
    }
}

fn kinds(send: bool, write: bool, read: bool) -> RtrKinds {
    RtrKinds { send, write, read }
}

fn standard() -> Terms {
    Terms {
        extensions: false,
        ..Terms::default()
    }
}

#[test]
fn both_sides_agree_at_every_chunk_size() {
    let whole = startup(Terms::default(), Terms::default(), 1000);
    for chunk in 1..60 {
        assert_eq!(startup(Terms::default(), Terms::default(), chunk), whole);
    }
}

#[test]
fn extensions_need_offer_and_matching_reply() {
    let (a, b) = agreed(Terms::default(), Terms::default());
    assert!(a.extensions && b.extensions);
    assert_eq!((a.rtr, b.rtr), (Rtr::Caps, Rtr::Caps));
    for (ours, theirs) in [
        (Terms::default(), standard()),
        (standard(), Terms::default()),
    ] {
        let (a, b) = agreed(ours, theirs);
        assert!(!a.extensions && !b.extensions);
    }
}

#[test]
fn echoed_reserved_flags_mean_standard_peer() {
    // Linux siw returns the reserved bits of the Request in its Reply.
    for echoed in [0x01, 0x03, 0x0f] {
        let mut a = Endpoint::initiator(Terms::default(), b"", NOW).unwrap();
        let request = a.poll_transmit();
        let mut reply = b"MPA ID Rep Frame".to_vec();
        reply.extend([(request[16] & 0xf0) | echoed, 2, 0, 4, 0x80, 8, 0x80, 8]);
        a.handle_bytes(&reply);
        let Some(Outcome::Established(agreement)) = a.into_outcome() else {
            panic!("agrees");
        };
        assert!(!agreement.extensions, "{echoed:#x}");
    }
}

#[test]
fn crc_if_either_wants_markers_per_direction() {
    for (ours, theirs) in [(false, false), (true, false), (false, true), (true, true)] {
        let side = |want| Terms {
            crc: want,
            markers: want,
            ..Terms::default()
        };
        let (a, b) = agreed(side(ours), side(theirs));
        assert_eq!((a.crc, b.crc), (ours || theirs, ours || theirs));
        assert_eq!((a.markers_rx, a.markers_tx), (ours, theirs));
        assert_eq!((b.markers_rx, b.markers_tx), (theirs, ours));
    }
}

#[test]
fn ord_is_limited_by_peer_ird() {
    let deep = |ird, ord| Terms {
        ird,
        ord,
        ..Terms::default()
    };
    let (a, b) = agreed(deep(8, 100), deep(16, 50));
    assert_eq!((a.ird, a.ord), (8, 16), "our ORD fits their IRD");
    assert_eq!((b.ird, b.ord), (16, 8), "their ORD fits our IRD");
}

#[test]
fn insufficient_ird_ends_with_terminate() {
    // RFC 6581 §9.1: Terminate, MPA error 6.
    let mut a = Endpoint::initiator(standard(), b"", NOW).unwrap();
    a.poll_transmit();
    let mut reply = b"MPA ID Rep Frame".to_vec();
    reply.extend([0x50, 2, 0, 4, 0x80, 1, 0x41, 0x00]);
    a.handle_bytes(&reply);
    let words = a.poll_transmit();
    assert_eq!(words[20..24], [0x20, 6, 0, 0]);
    let (wanted, limit) = (256, 128);
    let reason = Failure::InsufficientIrd { wanted, limit };
    let outcome = a.into_outcome();
    assert_eq!(
        outcome,
        Some(Outcome::Failed {
            reason,
            retry: None
        })
    );
}

#[test]
fn unnegotiated_depths_stay_unchanged() {
    // RFC 6581 §9.1: 0x3fff is answered by 0x3fff in the mirrored field.
    let mut b = Endpoint::responder(standard(), NOW);
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([0x50, 2, 0, 4, 0x3f, 0xff, 0x3f, 0xff]);
    b.handle_bytes(&request);
    b.accept(10, 20, b"").unwrap();
    let reply = b.poll_transmit();
    assert_eq!(reply[20..24], [0x3f, 0xff, 0x3f, 0xff]);
    let Some(Outcome::Established(agreement)) = b.into_outcome() else {
        panic!("agrees");
    };
    assert_eq!((agreement.ird, agreement.ord), (10, 20));
}

#[test]
fn outbound_depth_may_stay_unnegotiated() {
    let open = Terms {
        ord: Terms::NOT_NEGOTIATED,
        ..standard()
    };
    let mut a = Endpoint::initiator(open, b"", NOW).unwrap();
    let request = a.poll_transmit();
    assert_eq!(request[22..24], [0xff, 0xff], "C, D and all of ORD");
    let mut b = Endpoint::responder(standard(), NOW);
    b.handle_bytes(&request);
    b.accept(7, 7, b"").unwrap();
    a.handle_bytes(&b.poll_transmit());
    let Some(Outcome::Established(agreement)) = a.into_outcome() else {
        panic!("agrees");
    };
    assert_eq!(agreement.ord, Terms::NOT_NEGOTIATED, "for others to settle");
    // Neither a larger number nor the number of served reads is ever sent as "not negotiated".
    let wish = Terms {
        ird: Terms::NOT_NEGOTIATED,
        ord: u16::MAX,
        ..standard()
    };
    let request = Endpoint::initiator(wish, b"", NOW).unwrap().poll_transmit();
    assert_eq!(request[20..24], [0xbf, 0xfe, 0xff, 0xfe]);
}

#[test]
fn rtr_message_is_supported_by_both_sides() {
    for (ours, theirs, chosen) in [
        (kinds(true, true, true), kinds(true, true, true), Rtr::Write),
        (kinds(true, true, true), kinds(true, false, true), Rtr::Read),
        (
            kinds(true, false, false),
            kinds(true, true, true),
            Rtr::Send,
        ),
    ] {
        let side = |rtr| Terms { rtr, ..standard() };
        let (a, b) = agreed(side(ours), side(theirs));
        assert_eq!(a.rtr, chosen);
        let Rtr::AnyOf(listed) = b.rtr else {
            panic!("peer to peer");
        };
        let has = match chosen {
            Rtr::Write => listed.write,
            Rtr::Read => listed.read,
            _ => listed.send,
        };
        assert!(has);
    }
    let client = Terms {
        peer_to_peer: false,
        ..standard()
    };
    let (a, b) = agreed(client, standard());
    assert_eq!((a.rtr, b.rtr), (Rtr::None, Rtr::None));
}

#[test]
fn missing_common_rtr_ends_with_terminate() {
    // RFC 6581 §9.2: Terminate, MPA error 7.
    let ours = Terms {
        rtr: kinds(false, true, false),
        ..standard()
    };
    let mut a = Endpoint::initiator(ours, b"", NOW).unwrap();
    a.poll_transmit();
    let mut reply = b"MPA ID Rep Frame".to_vec();
    reply.extend([0x50, 2, 0, 4, 0x80, 8, 0x40, 8]);
    a.handle_bytes(&reply);
    assert_eq!(a.poll_transmit()[20..24], [0x20, 7, 0, 0]);
    let reason = Failure::NoCommonRtr;
    let outcome = a.into_outcome();
    assert_eq!(
        outcome,
        Some(Outcome::Failed {
            reason,
            retry: None
        })
    );
}

#[test]
fn rtr_read_always_has_an_inbound_slot() {
    let ours = Terms {
        ord: 0,
        rtr: kinds(false, false, true),
        ..standard()
    };
    let theirs = Terms {
        ird: 0,
        ..standard()
    };
    let (_, b) = agreed(ours, theirs.clone());
    assert_eq!(b.ird, 1);
    // Also where depths are not negotiated: the Read was offered, so it must be accepted.
    let mut b = Endpoint::responder(theirs, NOW);
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([0x50, 2, 0, 4, 0xbf, 0xff, 0x7f, 0xff]);
    b.handle_bytes(&request);
    b.accept(0, 0, b"").unwrap();
    let Some(Outcome::Established(agreement)) = b.into_outcome() else {
        panic!("agrees");
    };
    assert_eq!(agreement.ird, 1);
}

#[test]
fn revision_one_carries_no_depths() {
    let (a, b) = agreed(standard().fallback(), standard());
    assert_eq!((a.revision, b.revision), (Revision::One, Revision::One));
    assert_eq!((a.ird, a.ord, a.rtr), (128, 128, Rtr::None));
    assert_eq!(
        (b.rtr, b.private_data.as_slice()),
        (Rtr::None, &b"hello"[..])
    );
}

#[test]
fn timeout_and_eof_suggest_revision_one() {
    let failed = |endpoint: Endpoint| match endpoint.into_outcome() {
        Some(Outcome::Failed { reason, retry }) => (reason, retry),
        other => panic!("fails: {other:?}"),
    };
    let begin = |terms| Endpoint::initiator(terms, b"", NOW).unwrap();
    let mut a = begin(Terms::default());
    a.handle_eof();
    assert_eq!(failed(a), (Failure::Closed, Some(Revision::One)));

    let mut a = begin(Terms::default());
    a.handle_timeout(NOW + Duration::from_millis(4999));
    assert_eq!(a.state(), State::AwaitReply);
    a.handle_timeout(a.deadline().unwrap());
    assert_eq!(failed(a), (Failure::Timeout, Some(Revision::One)));

    let mut a = begin(Terms::default().fallback());
    a.handle_eof();
    assert_eq!(failed(a), (Failure::Closed, None), "there is nothing older");

    let mut a = begin(Terms::default());
    a.handle_bytes(b"MPA ID Rep Frame\x40\x01\0\0");
    assert_eq!(failed(a), (Failure::RevisionChanged, Some(Revision::One)));

    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_eof();
    assert_eq!(
        failed(b),
        (Failure::Closed, None),
        "a responder never dials"
    );
}

#[test]
fn a_rejection_carries_private_data() {
    let mut a = Endpoint::initiator(Terms::default(), b"please", NOW).unwrap();
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(&a.poll_transmit());
    b.reject(b"no thanks").unwrap();
    a.handle_bytes(&b.poll_transmit());
    let private_data = b"no thanks".to_vec();
    assert_eq!(a.into_outcome(), Some(Outcome::Rejected { private_data }));
    assert_eq!(b.into_outcome(), Some(Outcome::Refused));
}

#[test]
fn bytes_behind_reply_are_left_to_stream() {
    let mut a = Endpoint::initiator(Terms::default(), b"", NOW).unwrap();
    let mut b = Endpoint::responder(Terms::default(), NOW);
    b.handle_bytes(&a.poll_transmit());
    b.accept(1, 1, &[7; 508]).unwrap();
    let mut bytes = b.poll_transmit();
    let frame = bytes.len();
    assert_eq!(frame, MAX_FRAME);
    bytes.extend(b"surplus");
    assert_eq!(a.handle_bytes(&bytes), frame);
    assert_eq!(a.state(), State::Established);
    assert_eq!(a.handle_bytes(b"surplus"), 0);
}

#[test]
fn out_of_turn_accept_and_reject_are_refused() {
    let mut b = Endpoint::responder(Terms::default(), NOW);
    let early = Err(Misuse::NotDeciding(State::AwaitRequest));
    assert_eq!(b.accept(1, 1, b""), early);
    assert_eq!(b.reject(b""), early);
    let mut a = Endpoint::initiator(Terms::default(), b"", NOW).unwrap();
    b.handle_bytes(&a.poll_transmit());
    assert!(matches!(
        b.accept(1, 1, &[0; 509]),
        Err(Misuse::PrivateData(_))
    ));
    assert_eq!(b.state(), State::Deciding);
    b.accept(1, 1, b"").unwrap();
    assert!(b.reject(b"").is_err());
    let too_much = Endpoint::initiator(Terms::default(), &[0; 509], NOW);
    assert!(matches!(too_much, Err(Misuse::PrivateData(_))));
}
