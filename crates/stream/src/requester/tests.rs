//! Tests of the requester: the table, the arithmetic of acknowledgements, waits after RNR.

use core::time::Duration;

use super::*;
use crate::testing::{table, timer};

fn sent(n: u32) -> Requester {
    let mut requester = Requester::new(true, RnrRetry::Forever);
    for _ in 0..n {
        requester.number_request();
    }
    requester
}

fn rsn(n: u32) -> Rsn {
    Rsn::wrapping(n)
}

#[test]
fn the_table_of_states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next));
}

#[test]
fn acknowledgements_move_forward_within_what_was_sent() {
    let mut r = sent(10);
    assert_eq!(r.handle_ack(rsn(4)), Ok(()));
    assert_eq!(r.unacknowledged(), 6);
    assert_eq!(r.handle_ack(rsn(4)), Ok(()), "repeating one is harmless");
    for wrong in [3, 11, 0x80_0000, 0xff_ffff] {
        let refused = r.handle_ack(rsn(wrong));
        assert!(
            matches!(refused, Err(Violation::Impossible { kind: "ACK", .. })),
            "{wrong}"
        );
    }
    assert_eq!(r.acked(), rsn(4), "a lie changes nothing");
}

#[test]
fn numbers_wrap_at_24_bits() {
    let mut r = Requester::new(true, RnrRetry::Forever);
    for _ in 0..(1 << 24) + 5 {
        let n = r.number_request();
        assert_eq!(r.handle_ack(n.next()), Ok(()));
    }
    assert_eq!(r.next(), rsn(5));
}

#[test]
fn the_window_closes_at_its_limit() {
    let mut r = sent(MAX_UNACKNOWLEDGED);
    assert!(!r.may_send());
    assert_eq!(r.handle_ack(rsn(1)), Ok(()));
    assert!(r.may_send());
}

#[test]
fn not_ready_pauses_and_ready_rewinds() {
    let mut r = sent(10);
    assert_eq!(r.handle_rnr(rsn(6), timer(), Time::ZERO), Ok(()));
    assert!(!r.may_send());
    assert_eq!(
        r.handle_ack(rsn(6)),
        Ok(()),
        "what came before was executed"
    );
    assert!(r.handle_ack(rsn(7)).is_err(), "what was refused was not");
    assert_eq!(r.handle_ready(rsn(6)), Ok(()));
    assert_eq!(r.next(), rsn(6));
    assert!(r.may_send());
}

#[test]
fn reused_request_number_gets_a_new_deadline() {
    let mut r = Requester::new(true, RnrRetry::Times(1));
    r.number_request();
    assert_eq!(r.handle_rnr(rsn(0), timer(), Time::ZERO), Ok(()));
    assert_eq!(r.handle_ready(rsn(0)), Ok(()));
    for _ in 0..1 << 24 {
        let n = r.number_request();
        assert_eq!(r.handle_ack(n.next()), Ok(()));
    }
    assert_eq!(r.number_request(), rsn(0));
    let later = Time::ZERO + Duration::from_secs(60);
    assert_eq!(r.handle_rnr(rsn(0), timer(), later), Ok(()));
    assert_eq!(r.deadline(), Some(later + MIN_RNR_WAIT));
}

#[test]
fn impossible_rnr_and_ready_are_violations() {
    let out_of_place = Err(Violation::OutOfPlace("RNR"));
    assert_eq!(
        sent(0).handle_rnr(rsn(0), timer(), Time::ZERO),
        out_of_place
    );
    let mut r = sent(3);
    assert!(
        r.handle_rnr(rsn(3), timer(), Time::ZERO).is_err(),
        "not sent yet"
    );
    assert_eq!(r.handle_ack(rsn(2)), Ok(()));
    assert!(
        r.handle_rnr(rsn(1), timer(), Time::ZERO).is_err(),
        "already executed"
    );
    assert_eq!(r.handle_ready(rsn(2)), Err(Violation::OutOfPlace("READY")));
    assert_eq!(r.handle_rnr(rsn(2), timer(), Time::ZERO), Ok(()));
    assert_eq!(r.handle_rnr(rsn(2), timer(), Time::ZERO), out_of_place);
    assert!(
        r.handle_ready(rsn(1)).is_err(),
        "another request than the refused one"
    );
}

#[test]
fn rnr_deadline_is_retries_times_timer() {
    let deadline = |value, timer| {
        let mut r = Requester::new(true, RnrRetry::from_verbs(value));
        r.number_request();
        r.handle_rnr(rsn(0), timer, Time::ZERO).unwrap();
        r.deadline()
    };
    let slow = RnrTimer::new(0).unwrap();
    assert_eq!(deadline(0, slow), Some(Time::ZERO), "fails at once");
    assert_eq!(deadline(1, timer()), Some(Time::ZERO + MIN_RNR_WAIT));
    assert_eq!(
        deadline(3, slow),
        Some(Time::ZERO + Duration::from_micros(655_360) * 3)
    );
    assert_eq!(deadline(7, slow), None, "for ever");
}

#[test]
fn repeated_rnr_gets_no_new_deadline() {
    let mut r = Requester::new(true, RnrRetry::Times(1));
    r.number_request();
    let late = Time::ZERO + Duration::from_millis(90);
    r.handle_rnr(rsn(0), timer(), Time::ZERO).unwrap();
    r.handle_ready(rsn(0)).unwrap();
    r.number_request();
    r.handle_rnr(rsn(0), timer(), late).unwrap();
    assert_eq!(r.deadline(), Some(Time::ZERO + MIN_RNR_WAIT));
    assert!(!r.handle_timeout(late));
    assert!(r.handle_timeout(Time::ZERO + MIN_RNR_WAIT));
    assert_eq!(r.state(), State::GaveUp);
    assert_eq!(r.handle_ready(rsn(0)), Ok(()), "too late, but no lie");
    assert!(!r.may_send());
}

#[test]
fn towards_a_standard_peer_nothing_waits_for_acknowledgement() {
    let mut r = Requester::new(false, RnrRetry::Forever);
    for _ in 0..MAX_UNACKNOWLEDGED + 10 {
        r.number_request();
    }
    assert!(r.may_send());
    assert_eq!(r.handle_response(rsn(3)), Ok(()));
}
