//! A missing receive: waiting, restarting, giving up, and possible deadlocks.

use core::time::Duration;

use verbena_events::event::Event;
use verbena_stream::{RnrRetry, Time};

use crate::state::{Personality, QpState, QpType};
use crate::testing::{Pair, SEND, Setup};
use crate::wc::Status;
use crate::wr::{ReceiveWr, SendOp};

fn success(ids: core::ops::Range<u64>) -> Vec<(u64, Status)> {
    ids.map(|id| (id, Status::Success)).collect()
}

#[test]
fn sends_without_receives_arrive_once_in_order() {
    for shared in [false, true] {
        let mut pair = Pair::new(Setup {
            shared,
            ..Setup::default()
        });
        for id in 0..10 {
            pair.a.memory.write(id as usize, &[id as u8 + 1]);
            let gather = [pair.a.sge(id, 1)];
            pair.a.post(id, SEND, &gather);
        }
        pair.run();
        assert!(pair.a.statuses().is_empty(), "nothing is acknowledged");
        for id in 0..10 {
            let scatter = [pair.b.sge(100 + id, 1)];
            pair.b.receive(id, &scatter);
            pair.run();
        }
        assert_eq!(pair.b.memory.read(100, 10), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(pair.a.statuses(), success(0..10));
        assert_eq!(pair.b.received().len(), 10);
        assert!(
            pair.b.qp.counters().rnr_sent >= 9,
            "the receiver really was not ready"
        );
    }
}

#[test]
fn requests_behind_rnr_execute_exactly_once() {
    let mut pair = Pair::roce();
    let at = 64 - (pair.b.memory.at() % 8);
    let remote = pair.b.remote(at);
    let sinks = [pair.a.sge(0, 8)];
    let add = SendOp::FetchAdd {
        remote,
        add: 1,
        mask: 0,
    };
    for round in 0..5 {
        pair.a.post(round * 3, SEND, &[]);
        pair.a.post(round * 3 + 1, add, &sinks);
        let piece = [pair.a.sge(1000, 3000)];
        let write = SendOp::Write {
            remote: pair.b.remote(2000),
            immediate: Some(9),
        };
        pair.a.post(round * 3 + 2, write, &piece);
    }
    pair.run();
    for id in 0..10 {
        pair.b.receive(id, &[]);
        pair.run();
    }
    assert_eq!(pair.a.statuses(), success(0..15));
    assert_eq!(pair.b.memory.read(at as usize, 8), 5_u64.to_ne_bytes());
    let lens: Vec<_> = pair.b.received().iter().map(|w| w.len).collect();
    assert_eq!(lens, [0, 3000, 0, 3000, 0, 3000, 0, 3000, 0, 3000]);
}

#[test]
fn mutual_rnr_with_reads_does_not_deadlock() {
    let mut pair = Pair::roce();
    for id in 0..6 {
        for (from, to) in [(true, false), (false, true)] {
            let remote = if to {
                pair.a.remote(0)
            } else {
                pair.b.remote(0)
            };
            let side = if from { &mut pair.a } else { &mut pair.b };
            let sink = [side.sge(4000, 2500)];
            side.post(id * 2, SEND, &[]);
            let read = SendOp::Read {
                remote,
                local_invalidate: None,
            };
            side.post(id * 2 + 1, read, &sink);
        }
    }
    pair.run();
    for id in 0..6 {
        pair.a.receive(id, &[]);
        pair.b.receive(id, &[]);
        pair.run();
    }
    assert_eq!(pair.a.statuses(), success(0..12));
    assert_eq!(pair.b.statuses(), success(0..12));
}

#[test]
fn exhausted_rnr_retries_fail_the_send() {
    for (retry, wait) in [(RnrRetry::Never, 0), (RnrRetry::Times(2), 100)] {
        let mut pair = Pair::new(Setup {
            rnr_retry: retry,
            ..Setup::default()
        });
        pair.a.post(1, SEND, &[]);
        pair.a.post(2, SEND, &[]);
        pair.run();
        pair.wait();
        assert_eq!(pair.now, Time::ZERO + Duration::from_millis(wait));
        let expected = [(1, Status::RnrRetryExcErr), (2, Status::WrFlushErr)];
        assert_eq!(pair.a.statuses(), expected);
        assert_eq!(pair.a.qp.state(), QpState::Err);
        assert_eq!(
            pair.a.qp.cause().unwrap(),
            "the peer had no receive for too long"
        );
    }
}

#[test]
fn missing_receive_ends_standard_stream_after_one_second() {
    let standard = Setup {
        extensions: false,
        ..Setup::default()
    };
    let mut pair = Pair::new(standard);
    let gather = [pair.a.sge(0, 3)];
    pair.a.post(1, SEND, &gather);
    pair.run();
    assert_eq!(pair.b.qp.state(), QpState::Rts, "it waits");
    let scatter = [pair.b.sge(0, 3)];
    pair.b.receive(7, &scatter);
    pair.run();
    assert_eq!(pair.b.received()[0].id, 7, "in time");
    // The second message's second begins when it is found waiting, not at time zero.
    pair.now = Time::ZERO + Duration::from_secs(5);
    pair.a.post(2, SEND, &gather);
    pair.run();
    pair.wait();
    assert_eq!(pair.now, Time::ZERO + Duration::from_secs(6));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert_eq!(pair.b.events()[0], Event::QpRequest { qp: 2 });
}

#[test]
fn each_standard_message_waits_its_own_second() {
    let mut pair = Pair::new(Setup {
        extensions: false,
        ..Setup::default()
    });
    pair.now = Time::ZERO + Duration::from_secs(100);
    let gather = [pair.a.sge(0, 3)];
    pair.a.post(1, SEND, &gather);
    pair.a.post(2, SEND, &gather);
    pair.run();
    let scatter = [pair.b.sge(0, 3)];
    pair.b.receive(7, &scatter);
    // The receive was posted at a time unknown to the queue pair; it requests a timeout, and the second begins then.
    let asked = pair.now + Duration::from_millis(900);
    pair.b.qp.handle_timeout(asked, &mut pair.b.out);
    assert_eq!(pair.b.qp.deadline(), Some(asked + Duration::from_secs(1)));
    assert_eq!(pair.b.qp.state(), QpState::Rts);
}

#[test]
fn iwarp_without_receive_terminates_at_once() {
    let mut pair = Pair::new(Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    });
    pair.a.post(1, SEND, &[]);
    pair.run();
    assert_eq!(pair.b.qp.state(), QpState::Terminate);
    assert_eq!(pair.a.qp.state(), QpState::Terminate);
    let cause = pair.a.qp.cause().unwrap();
    assert!(cause.contains("no buffer"), "{cause}");
}

#[test]
fn an_unreliable_connection_drops_what_finds_no_receive() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    pair.a.post(1, SEND, &[]);
    pair.run();
    let scatter = [pair.b.sge(0, 4)];
    pair.b.receive(5, &scatter);
    let gather = [pair.a.sge(0, 4)];
    pair.a.post(2, SEND, &gather);
    pair.run();
    assert_eq!(pair.a.statuses(), success(1..3));
    assert_eq!(pair.b.received().len(), 1);
    assert_eq!(pair.b.qp.state(), QpState::Rts);
}

#[test]
fn arrived_message_is_received_after_disconnect() {
    for shared in [false, true] {
        let mut pair = Pair::new(Setup {
            extensions: false,
            shared,
            ..Setup::default()
        });
        let gather = [pair.a.sge(0, 3)];
        pair.a.post(1, SEND, &gather);
        pair.run();
        pair.b.qp.handle_eof(false, &mut pair.b.out);
        assert!(
            pair.b.events().is_empty(),
            "the end comes after the message"
        );
        let scatter = [pair.b.sge(0, 3)];
        pair.b.receive(7, &scatter);
        assert_eq!(pair.b.events(), [Event::Disconnected { qp: 2 }]);
        let received = pair.b.received();
        assert_eq!(received.len(), 1, "shared: {shared}");
        assert_eq!((received[0].id, received[0].status), (7, Status::Success));
    }
    // Without a receive the stream ends after the wait.
    let mut pair = Pair::new(Setup {
        extensions: false,
        ..Setup::default()
    });
    pair.a.post(1, SEND, &[]);
    pair.run();
    pair.b.qp.handle_eof(false, &mut pair.b.out);
    let later = Time::ZERO + Duration::from_secs(1);
    pair.b.qp.handle_timeout(later, &mut pair.b.out);
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let gone = Event::Disconnected { qp: 2 };
    assert!(pair.b.events().contains(&gone));
}

/// The refused request is the one that fails, also when answers to earlier ones arrive after the refusal.
#[test]
fn requests_executed_before_rnr_succeed() {
    let mut pair = Pair::new(Setup {
        rnr_retry: RnrRetry::Times(0),
        ..Setup::default()
    });
    let add = SendOp::FetchAdd {
        remote: pair.b.remote(0),
        add: 1,
        mask: 0,
    };
    let write = SendOp::Write {
        remote: pair.b.remote(8),
        immediate: None,
    };
    let (result, source) = ([pair.a.sge(0, 8)], [pair.a.sge(8, 8)]);
    pair.a.post(1, add, &result);
    pair.a.post(2, write, &source);
    pair.a.post(3, SEND, &source);
    pair.a.post(4, write, &source);
    pair.run();
    if pair.a.qp.deadline().is_some() {
        pair.wait();
    }
    let expected = [
        (1, Status::Success),
        (2, Status::Success),
        (3, Status::RnrRetryExcErr),
        (4, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), expected);
    assert_eq!(pair.b.memory.read(0, 8), 1_u64.to_ne_bytes());
}

/// docs/connections.md: a draining queue finishes what it began, including a request that was refused meanwhile.
#[test]
fn drain_waits_for_rnr_refused_request() {
    let mut pair = Pair::roce();
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, SEND, &piece);
    pair.run();
    pair.a.qp.modify(QpState::Sqd, &mut pair.a.out).unwrap();
    pair.a.post(2, SEND, &piece);
    pair.run();
    assert!(pair.a.events().is_empty(), "not drained yet");
    let scatter = [pair.b.sge(0, 8)];
    pair.b.receive(7, &scatter);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    let drained = [Event::SqDrained { qp: 1 }];
    assert_eq!(pair.a.events(), drained);
    pair.a.post(3, SEND, &piece);
    pair.run();
    assert!(pair.a.events().is_empty(), "told once");
    pair.b.receive(8, &scatter);
    pair.b.receive(9, &scatter);
    pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
    pair.run();
    let rest = [(2, Status::Success), (3, Status::Success)];
    assert_eq!(pair.a.statuses(), rest);
}

/// A queue pair that its program moved to the error state still reads what its peer sends, but takes nothing from its shared
/// receive queue.
#[test]
fn a_failed_queue_pair_takes_no_shared_receive() {
    for crc in [false, true] {
        let mut pair = Pair::new(Setup {
            shared: true,
            crc,
            ..Setup::default()
        });
        let scatter = [pair.b.sge(0, 100)];
        pair.b.receive(7, &scatter);
        pair.b.qp.modify(QpState::Err, &mut pair.b.out).unwrap();
        let gather = [pair.a.sge(0, 50)];
        pair.a.post(1, SEND, &gather);
        pair.run();
        assert_eq!(pair.b.received(), []);
        assert_eq!(
            pair.b.srq.as_ref().unwrap().len(),
            1,
            "it is for the others"
        );
        assert_eq!(
            pair.b.srq.as_ref().unwrap().post(&ReceiveWr {
                id: 8,
                scatter: &[]
            }),
            Ok(None),
            "no queue pair waits"
        );
    }
}
