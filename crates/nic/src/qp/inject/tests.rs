//! Injected faults under a clock of the test: order, times, and a reset with faults that have not happened.

use core::time::Duration;

use super::*;
use crate::testing::{Pair, SEND, Setup};
use crate::wr::{Data, Flags};

fn post(pair: &mut Pair, id: u64, fault: SendFault) {
    let piece = [pair.a.sge(0, 8)];
    let request = SendWr {
        id,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Gather(&piece),
    };
    pair.a.qp.queue_faulty_send(None, &request, fault).unwrap();
    pair.a.qp.ring_doorbell(&mut pair.a.out);
}

fn with_receives(count: u64) -> Pair {
    let mut pair = Pair::new(Setup::default());
    for id in 0..count {
        let scatter = [pair.b.sge(100, 8)];
        pair.b.receive(id, &scatter);
    }
    pair
}

#[test]
fn faulty_request_waits_for_those_before_it() {
    let mut pair = with_receives(3);
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, SEND, &piece);
    post(&mut pair, 2, SendFault::Fail(Status::RemOpErr));
    pair.a.post(3, SEND, &piece);
    assert!(pair.a.statuses().is_empty());
    pair.run();
    let expected = [
        (1, Status::Success),
        (2, Status::RemOpErr),
        (3, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), expected);
    let received = pair.b.received();
    let delivered = received.iter().filter(|wc| wc.status == Status::Success);
    assert_eq!(delivered.count(), 1, "the others are flushed");
    let failure = pair.a.qp.view().failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Injected);
    assert!(failure.sentence.ends_with(INJECTED), "{failure:?}");
}

#[test]
fn held_requests_begin_at_their_time() {
    let mut pair = with_receives(2);
    let until = |ms| Time::ZERO + Duration::from_millis(ms);
    post(&mut pair, 1, SendFault::HoldUntil(until(10)));
    post(&mut pair, 2, SendFault::HoldUntil(until(30)));
    pair.run();
    for (at, done) in [(10, 1), (30, 2)] {
        assert_eq!(pair.a.qp.deadline(), Some(until(at)));
        pair.a.qp.handle_timeout(until(at - 1), &mut pair.a.out);
        pair.run();
        assert!(pair.a.statuses().is_empty());
        pair.a.qp.handle_timeout(until(at), &mut pair.a.out);
        pair.run();
        assert_eq!(pair.a.statuses(), [(done, Status::Success)]);
    }
    assert_eq!(pair.a.qp.deadline(), None);
}

#[test]
fn reset_forgets_faults() {
    let mut pair = with_receives(0);
    post(
        &mut pair,
        1,
        SendFault::HoldUntil(Time::ZERO + Duration::from_secs(1)),
    );
    let until = RefuseUntil::Count(5);
    assert!(pair.a.qp.refuse_messages(until, &mut pair.a.out));
    assert!(!pair.a.qp.refuse_messages(until, &mut pair.a.out));
    let scatter = [pair.a.sge(0, 8)];
    pair.a.receive(7, &scatter);
    pair.a.qp.modify(QpState::Reset, &mut pair.a.out).unwrap();
    assert_eq!(pair.a.qp.deadline(), None);
    assert_eq!(pair.a.qp.outstanding(), (0, 0));
}

#[test]
fn refused_messages_are_counted_and_delivered() {
    let mut pair = with_receives(1);
    assert!(
        pair.b
            .qp
            .refuse_messages(RefuseUntil::Count(2), &mut pair.b.out)
    );
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, SEND, &piece);
    pair.run();
    let mut now = Time::ZERO;
    for _ in 0..2 {
        assert!(pair.a.statuses().is_empty());
        now = pair.b.qp.deadline().unwrap().max(now);
        pair.b.qp.handle_timeout(now, &mut pair.b.out);
        pair.run();
    }
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.qp.counters().rnr_sent, 2);
}

#[test]
fn killed_queue_pair_flushes_and_names_the_reason() {
    let mut pair = with_receives(1);
    assert!(pair.b.qp.kill("the test ends it", &mut pair.b.out));
    assert!(!pair.b.qp.kill("again", &mut pair.b.out));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let failure = pair.b.qp.view().failure.unwrap();
    assert_eq!(failure.sentence, format!("the test ends it {INJECTED}"));
    pair.run();
    assert_eq!(pair.a.qp.state(), QpState::Err, "the peer is told");
}
