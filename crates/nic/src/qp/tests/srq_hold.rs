//! Peers that hold a receive of a shared queue: in the middle of a message, or after READY.

use core::time::Duration;

use verbena_events::event::Event;
use verbena_stream::Time;

use crate::qp::Transfer;
use crate::state::{QpState, QpType};
use crate::testing::{Pair, SEND, Setup, feed, transmit};
use crate::wc::Status;

const WAIT: Duration = Duration::from_secs(10);
/// A queue pair that shares the queue.
const OTHER: u32 = 99;

fn setup(crc: bool) -> Setup {
    Setup {
        shared: true,
        crc,
        transfer: Transfer {
            shared_receive_wait: WAIT,
            ..Transfer::default()
        },
        ..Setup::default()
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// The time advances for the receiver alone.
fn advance_to(pair: &mut Pair, end: Time) {
    while let Some(next) = pair.b.qp.deadline().filter(|next| *next <= end) {
        pair.now = pair.now.max(next);
        pair.b.qp.handle_timeout(pair.now, &mut pair.b.out);
    }
    pair.now = end;
}

/// Carries bytes from the sender to the receiver only.
fn carry(pair: &mut Pair, most: usize) -> usize {
    let bytes = transmit(&pair.a.qp, most, pair.now, &mut pair.a.out);
    feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    bytes.len()
}

fn fails_with(pair: &mut Pair, cause: &str) {
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let said = pair.b.qp.cause().unwrap();
    assert!(said.contains(cause) && said.contains("10 s"), "{said}");
    let events = pair.b.events();
    for event in [Event::QpFatal { qp: 2 }, Event::LastWqe { qp: 2 }] {
        assert!(events.contains(&event), "{events:?}");
    }
}

#[test]
fn stalled_partial_message_ends_the_connection() {
    for crc in [false, true] {
        let mut pair = Pair::new(setup(crc));
        pair.now = at(100);
        let (gather, scatter) = ([pair.a.sge(0, 3000)], [pair.b.sge(0, 3000)]);
        pair.b.receive(7, &scatter);
        pair.a.post(1, SEND, &gather);
        assert_eq!(carry(&mut pair, 1500), 1500);
        assert_eq!(pair.b.srq.as_ref().unwrap().len(), 0, "taken");
        advance_to(&mut pair, at(109));
        assert_eq!(pair.b.qp.state(), QpState::Rts, "not yet");
        advance_to(&mut pair, at(113));
        fails_with(&mut pair, "did not go on");
        // As on hardware: a receive that was taken completes in error where it was taken.
        let received = pair.b.received();
        assert_eq!(received.len(), 1);
        assert_eq!(
            (received[0].id, received[0].status),
            (7, Status::WrFlushErr)
        );
    }
}

#[test]
fn slow_messages_are_received() {
    for (crc, step) in [(false, 100), (true, 1100)] {
        let mut pair = Pair::new(setup(crc));
        let (gather, scatter) = ([pair.a.sge(0, 3000)], [pair.b.sge(0, 3000)]);
        for round in 0..2 {
            pair.b.receive(round, &scatter);
            pair.a.post(round, SEND, &gather);
            while carry(&mut pair, step) > 0 {
                let next = pair.now + Duration::from_secs(9);
                advance_to(&mut pair, next);
            }
            pair.run();
            let received = pair.b.received();
            assert_eq!(received.len(), 1, "{:?}", pair.b.qp.cause());
            assert_eq!((received[0].id, received[0].len), (round, 3000));
        }
        assert!(pair.now >= at(2 * 3 * 9));
    }
}

#[test]
fn unused_reserved_receive_returns_to_srq() {
    let mut pair = Pair::new(setup(true));
    pair.now = at(50);
    let (gather, scatter) = ([pair.a.sge(0, 8)], [pair.b.sge(0, 8)]);
    pair.a.post(1, SEND, &gather);
    pair.run();
    pair.b.receive(7, &scatter);
    let ready = transmit(&pair.b.qp, 777, pair.now, &mut pair.b.out);
    assert!(!ready.is_empty(), "READY");
    let srq = pair.b.srq.clone().unwrap();
    assert_eq!(srq.take_at_once(OTHER, &mut pair.b.out), None, "promised");
    advance_to(&mut pair, at(59));
    assert_eq!(pair.b.qp.state(), QpState::Rts, "not yet");
    advance_to(&mut pair, at(63));
    fails_with(&mut pair, "did not resume");
    assert_eq!(pair.b.received(), [], "nothing had taken it");
    let taken = srq.take_at_once(OTHER, &mut pair.b.out);
    assert_eq!(taken.map(|receive| receive.id), Some(7));
}

#[test]
fn active_peer_loses_only_its_reservation() {
    let mut pair = Pair::new(setup(true));
    let (gather, scatter) = ([pair.a.sge(0, 3000)], [pair.b.sge(0, 3000)]);
    pair.a.post(1, SEND, &gather);
    pair.a.post(2, SEND, &gather);
    // The first frame finds no receive; the others have been sent already.
    carry(&mut pair, 1100);
    pair.b.receive(7, &scatter);
    advance_to(&mut pair, at(5));
    carry(&mut pair, 1100);
    advance_to(&mut pair, at(20));
    assert_eq!(pair.b.qp.state(), QpState::Rts);
    let srq = pair.b.srq.clone().unwrap();
    let taken = srq.take_at_once(OTHER, &mut pair.b.out);
    assert_eq!(taken.map(|receive| receive.id), Some(7), "it is for others");
    pair.run();
    for id in [8, 9] {
        pair.b.receive(id, &scatter);
        pair.run();
    }
    let done = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(pair.a.statuses(), done);
    let ids: Vec<_> = pair.b.received().iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [8, 9]);
}

#[test]
fn receives_of_dropped_messages_return_to_srq() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..setup(true)
    });
    let (gather, scatter) = ([pair.a.sge(0, 50)], [pair.b.sge(0, 10)]);
    pair.b.receive(7, &scatter);
    pair.a.post(1, SEND, &gather);
    pair.run();
    let srq = pair.b.srq.clone().unwrap();
    assert_eq!((srq.len(), pair.b.received().len()), (0, 0), "too short");
    advance_to(&mut pair, at(20));
    assert_eq!((srq.len(), pair.b.qp.state()), (1, QpState::Rts));
}

#[test]
fn wake_without_reservation_sets_no_deadline() {
    let mut pair = Pair::new(setup(true));
    let scatter = [pair.b.sge(0, 8)];
    pair.b.receive(7, &scatter);
    pair.b.qp.receive_ready(&mut pair.b.out);
    assert_eq!(pair.b.qp.deadline(), None);
}

#[test]
fn own_receives_have_no_deadline() {
    let mut pair = Pair::new(Setup {
        shared: false,
        ..setup(true)
    });
    let (gather, scatter) = ([pair.a.sge(0, 3000)], [pair.b.sge(0, 3000)]);
    pair.b.receive(7, &scatter);
    pair.a.post(1, SEND, &gather);
    carry(&mut pair, 1500);
    assert_eq!(pair.b.qp.deadline(), None);
}
