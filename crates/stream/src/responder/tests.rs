//! Tests of the responder: the table, what counts as executed, when acknowledgements are due.

use super::*;
use crate::testing::table;

#[test]
fn the_table_of_states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next));
}

#[test]
fn delivered_request_counts_once_confirmed() {
    let mut r = Responder::new();
    assert_eq!(r.deliver(10), Rsn::ZERO);
    assert_eq!(r.executed(None), Rsn::ZERO, "its owner may still refuse it");
    r.confirm();
    r.confirm();
    assert_eq!(r.executed(None), Rsn::wrapping(1));
}

#[test]
fn acknowledgement_stops_at_the_oldest_unanswered_read() {
    let mut r = Responder::new();
    for _ in 0..5 {
        r.deliver(0);
    }
    r.confirm();
    let read = Some(Rsn::wrapping(2));
    assert_eq!(r.acknowledge(read), Rsn::wrapping(2));
    assert_eq!(r.due(read), Due::Nothing);
    r.acknowledged_by_response(Rsn::wrapping(2));
    assert_eq!(r.due(None), Due::Soon);
    assert_eq!(r.acknowledge(None), Rsn::wrapping(5));
}

#[test]
fn acknowledgements_are_due_by_count_and_by_bytes() {
    let mut r = Responder::new();
    for _ in 0..AckPolicy::default().requests - 1 {
        r.deliver(1);
    }
    r.confirm();
    assert_eq!(r.due(None), Due::Soon);
    r.deliver(1);
    r.confirm();
    assert_eq!(r.due(None), Due::Now);
    r.acknowledge(None);
    r.deliver(AckPolicy::default().bytes as u32);
    r.confirm();
    assert_eq!(r.due(None), Due::Now);
}

#[test]
fn rnr_and_resume_keep_the_request_number() {
    let mut r = Responder::new();
    r.deliver(1);
    assert_eq!(r.handle_no_receive(), Some(Rsn::wrapping(1)));
    assert!(r.is_discarding());
    let early = r.handle_resume(Rsn::wrapping(1));
    assert_eq!(
        early,
        Err(Violation::OutOfPlace("RESUME")),
        "not told to go on"
    );
    assert_eq!(r.handle_posted(), Some(Rsn::wrapping(1)));
    assert_eq!(r.handle_posted(), None, "told once");
    let early = r.handle_resume(Rsn::wrapping(1));
    assert_eq!(
        early,
        Err(Violation::OutOfPlace("RESUME")),
        "READY has not left"
    );
    r.handle_ready_sent();
    assert!(r.handle_resume(Rsn::wrapping(2)).is_err());
    assert_eq!(r.handle_resume(Rsn::wrapping(1)), Ok(()));
    assert_eq!(r.next(), Rsn::wrapping(1));
    assert!(!r.is_discarding());
}

#[test]
fn resume_without_refusal_is_out_of_place() {
    let mut r = Responder::new();
    assert_eq!(
        r.handle_resume(Rsn::ZERO),
        Err(Violation::OutOfPlace("RESUME"))
    );
    assert_eq!(r.handle_posted(), None);
}
