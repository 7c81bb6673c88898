//! Every work request, between Verbena peers and with a standard one, with every byte checked (M16).

use verbena_events::event::Event;
use verbena_mem::{Access, Bind, Buffer, WindowType};
use verbena_wire::Stag;
use verbena_wire::ext::Features;

use crate::Arm;
use crate::qp::PostError;
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, SEND, Setup, feed, transmit, write};
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, SendOp, SendWr};

fn every_setup(test: impl Fn(&mut Pair, Setup)) {
    for personality in [Personality::Roce, Personality::Iwarp] {
        for extensions in [false, true] {
            let setup = Setup {
                personality,
                extensions,
                ..Setup::default()
            };
            test(&mut Pair::new(setup), setup);
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251 + 1) as u8).collect()
}

#[test]
fn a_send_gathers_and_a_receive_scatters() {
    every_setup(|pair, setup| {
        pair.a.memory.write(0, &pattern(3000));
        let scatter = [
            pair.b.sge(4000, 1000),
            pair.b.sge(100, 0),
            pair.b.sge(6000, 2000),
        ];
        pair.b.receive(5, &scatter);
        let gather = [
            pair.a.sge(1000, 500),
            pair.a.sge(0, 1000),
            pair.a.sge(2500, 7),
        ];
        pair.a
            .post_flagged(1, SEND, &gather, Flags::SIGNALED | Flags::SOLICITED);
        pair.run();
        let sent = [
            &pattern(3000)[1000..1500],
            &pattern(1000),
            &pattern(3000)[2500..2507],
        ]
        .concat();
        assert_eq!(pair.b.memory.read(4000, 1000), sent[..1000], "{setup:?}");
        assert_eq!(pair.b.memory.read(6000, 507), sent[1000..]);
        assert_eq!(pair.b.memory.read(6507, 10), [0; 10]);
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        let received = pair.b.received();
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].id, received[0].len), (5, 1507));
        assert!(received[0].solicited);
    });
}

#[test]
fn a_write_arrives_without_a_receive() {
    every_setup(|pair, _| {
        pair.a.memory.write(0, &pattern(5000));
        let (remote, immediate) = (pair.b.remote(1234), None);
        let gather = [pair.a.sge(0, 5000)];
        pair.a.post(1, SendOp::Write { remote, immediate }, &gather);
        pair.run();
        assert_eq!(pair.b.memory.read(1234, 5000), pattern(5000));
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        assert!(pair.b.received().is_empty());
    });
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    every_setup(|pair, _| {
        pair.a.memory.write(0, &pattern(3000));
        let immediate = Some(0xfeed_beef);
        for (id, len) in [(1, 3000), (2, 0)] {
            pair.b.receive(id + 10, &[]);
            let remote = pair.b.remote(0);
            let gather = [pair.a.sge(0, len)];
            pair.a
                .post(id, SendOp::Write { remote, immediate }, &gather);
        }
        pair.run();
        assert_eq!(pair.b.memory.read(0, 3000), pattern(3000));
        let received = pair.b.received();
        let seen: Vec<_> = received
            .iter()
            .map(|w| (w.id, w.op, w.len, w.immediate))
            .collect();
        let op = WcOp::ReceiveWriteImm;
        assert_eq!(seen, [(11, op, 3000, immediate), (12, op, 0, immediate)]);
        assert_eq!(
            pair.a.statuses(),
            [(1, Status::Success), (2, Status::Success)]
        );
    });
}

#[test]
fn read_sink_needs_only_local_write() {
    every_setup(|pair, _| {
        pair.b.memory.write(500, &pattern(4000));
        let sink = Buffer::new(&pair.a.tpt, 5000, PD, Access::LOCAL_WRITE).unwrap();
        let piece = |offset: u64, len| crate::wr::Sge {
            addr: sink.at() + offset,
            len,
            stag: sink.stag(),
        };
        let op = SendOp::Read {
            remote: pair.b.remote(500),
            local_invalidate: None,
        };
        pair.a.post(1, op, &[piece(3000, 1500), piece(0, 2500)]);
        pair.run();
        assert_eq!(sink.read(3000, 1500), pattern(4000)[..1500]);
        assert_eq!(sink.read(0, 2500), pattern(4000)[1500..]);
        let sent = pair.a.sent();
        assert_eq!(
            (sent[0].status, sent[0].op, sent[0].len),
            (Status::Success, WcOp::Read, 4000)
        );
    });
}

#[test]
fn more_reads_than_the_depth_wait_their_turn() {
    let mut pair = Pair::roce();
    pair.b.memory.write(0, &pattern(100));
    for id in 0..20 {
        let op = SendOp::Read {
            remote: pair.b.remote(id),
            local_invalidate: None,
        };
        let sink = [pair.a.sge(4000 + id, 1)];
        pair.a.post(id, op, &sink);
    }
    pair.run();
    assert_eq!(pair.a.memory.read(4000, 20), pattern(20));
    let expected: Vec<_> = (0..20).map(|id| (id, Status::Success)).collect();
    assert_eq!(pair.a.statuses(), expected);
}

#[test]
fn atomics_return_the_previous_value() {
    every_setup(|pair, _| {
        let at = 64 - (pair.b.memory.at() % 8);
        pair.b.memory.write(at as usize, &40_u64.to_ne_bytes());
        let remote = pair.b.remote(at);
        let sinks = [pair.a.sge(0, 8), pair.a.sge(8, 8), pair.a.sge(16, 8)];
        pair.a.post(
            1,
            SendOp::FetchAdd {
                remote,
                add: 2,
                mask: 0,
            },
            &sinks[..1],
        );
        let swap = |compare| SendOp::CmpSwap {
            remote,
            compare,
            compare_mask: u64::MAX,
            swap: 7,
            swap_mask: u64::MAX,
        };
        pair.a.post(2, swap(41), &sinks[1..2]);
        pair.a.post(3, swap(42), &sinks[2..]);
        pair.run();
        let word = |offset| u64::from_ne_bytes(pair.a.memory.read(offset, 8).try_into().unwrap());
        assert_eq!([word(0), word(8), word(16)], [40, 42, 42]);
        assert_eq!(pair.b.memory.read(at as usize, 8), 7_u64.to_ne_bytes());
        assert_eq!(pair.a.statuses().len(), 3);
    });
}

#[test]
fn send_with_immediate_takes_one_or_two_receives() {
    for (features, receives) in [(Features::SEND_IMM, 1), (Features::NONE, 2)] {
        let mut pair = Pair::new(Setup {
            features,
            ..Setup::default()
        });
        for id in 0..receives {
            let scatter = [pair.b.sge(0, 100)];
            pair.b.receive(id, &scatter);
        }
        let op = SendOp::Send {
            invalidate: None,
            immediate: Some(77),
        };
        let gather = [pair.a.sge(0, 50)];
        pair.a.post(1, op, &gather);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        let received = pair.b.received();
        assert_eq!(received.len() as u64, receives);
        assert_eq!(received[0].len, 50);
        assert_eq!(received.last().unwrap().immediate, Some(77));
    }
}

#[test]
fn inline_data_may_be_reused_after_post() {
    let mut pair = Pair::roce();
    let scatter = [pair.b.sge(0, 100)];
    pair.b.receive(1, &scatter);
    let mut bytes = *b"inline";
    let wr = SendWr {
        id: 1,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Inline(&bytes),
    };
    pair.a.qp.post_send(&wr, &mut pair.a.out).unwrap();
    bytes.fill(0);
    pair.run();
    assert_eq!(pair.b.memory.read(0, 6), b"inline");
}

#[test]
fn signalled_requests_complete_in_posting_order() {
    let mut pair = Pair::roce();
    let (remote, immediate) = (pair.b.remote(0), None);
    let piece = [pair.a.sge(0, 2000)];
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    pair.a.post(1, read, &piece);
    pair.a
        .post_flagged(2, SendOp::Write { remote, immediate }, &piece, Flags::NONE);
    pair.a.post(3, SendOp::Write { remote, immediate }, &piece);
    pair.run();
    assert_eq!(
        pair.a.statuses(),
        [(1, Status::Success), (3, Status::Success)]
    );
    assert_eq!(pair.a.qp.outstanding(), (0, 0));
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    let mut pair = Pair::roce();
    pair.b.memory.write(0, b"old");
    pair.a.memory.write(100, b"new");
    let remote = pair.b.remote(0);
    let sink = [pair.a.sge(0, 3)];
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    pair.a.post(1, read, &sink);
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let source = [pair.a.sge(100, 3)];
    pair.a
        .post_flagged(2, write, &source, Flags::SIGNALED | Flags::FENCE);
    // Until the response has arrived, the fenced write is not sent.
    let first = transmit(&pair.a.qp, 10_000, pair.now, &mut pair.a.out);
    assert!(!first.windows(3).any(|w| w == b"new"));
    feed(&pair.b.qp, &first, pair.now, &mut pair.b.out);
    pair.run();
    assert_eq!(pair.a.memory.read(0, 3), b"old");
    assert_eq!(pair.b.memory.read(0, 3), b"new");
}

fn bind(pair: &Pair, window: Stag, access: Access) -> Bind {
    Bind {
        window,
        region: pair.b.memory.stag(),
        addr: pair.b.memory.at() + 100,
        len: 50,
        access,
        pd: PD,
        qp: pair.b.qp.number(),
        key: 0x5a,
        zero_based: true,
        one_touch: false,
    }
}

#[test]
fn peer_writes_and_invalidates_bound_window() {
    every_setup(|pair, _| {
        let window = pair.b.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
        let op = SendOp::Bind(bind(pair, window, Access::REMOTE_WRITE));
        pair.b.post(1, op, &[]);
        pair.run();
        assert_eq!(pair.b.statuses(), [(1, Status::Success)]);
        let stag = Stag::from_parts(window.index(), 0x5a).unwrap();
        let to = verbena_wire::To::new(10);
        let remote = crate::wr::RemoteAddr { stag, to };
        pair.a.memory.write(0, b"through the window");
        let gather = [pair.a.sge(0, 18)];
        let immediate = None;
        pair.a.post(2, SendOp::Write { remote, immediate }, &gather);
        pair.b.receive(3, &[]);
        let invalidate = Some(stag);
        pair.a.post(
            4,
            SendOp::Send {
                invalidate,
                immediate,
            },
            &[],
        );
        pair.run();
        assert_eq!(pair.b.memory.read(110, 18), b"through the window");
        assert_eq!(pair.b.received()[0].invalidated, Some(stag));
        assert!(pair.b.tpt.find_entry(stag).is_none());
    });
}

#[test]
fn reads_and_requests_may_invalidate_local_stags() {
    let mut pair = Pair::roce();
    let window = pair.b.tpt.allocate_window(WindowType::TwoA, PD).unwrap();
    let bound = Stag::from_parts(window.index(), 0x5a).unwrap();
    let op = SendOp::Bind(bind(&pair, window, Access::REMOTE_READ));
    pair.b.post(1, op, &[]);
    pair.run();
    let sink = [pair.b.sge(0, 4)];
    let read = SendOp::Read {
        remote: pair.a.remote(0),
        local_invalidate: Some(bound),
    };
    pair.b.post(2, read, &sink);
    pair.run();
    assert!(pair.b.tpt.find_entry(bound).is_none());
    pair.b.post(3, op, &[]);
    pair.b.post(4, SendOp::LocalInvalidate(bound), &[]);
    pair.run();
    assert!(pair.b.statuses().iter().all(|s| s.1 == Status::Success));
    assert!(pair.b.tpt.find_entry(bound).is_none());
}

#[test]
fn invalid_posts_are_refused_without_effect() {
    let mut pair = Pair::roce();
    let sges = vec![pair.a.sge(0, 1); 17];
    let post = |pair: &mut Pair, op, data| {
        let (id, flags) = (1, Flags::SIGNALED);
        let wr = SendWr {
            id,
            op,
            flags,
            data,
        };
        pair.a.qp.post_send(&wr, &mut pair.a.out)
    };
    let (got, limit) = (17, 16);
    let pieces = post(&mut pair, SEND, Data::Gather(&sges));
    assert_eq!(pieces, Err(PostError::TooManySges { got, limit }));
    let (got, limit) = (257, 256);
    let inline = post(&mut pair, SEND, Data::Inline(&[0; 257]));
    assert_eq!(inline, Err(PostError::Inline { got, limit }));
    let remote = pair.b.remote(0);
    let add = SendOp::FetchAdd {
        remote,
        add: 1,
        mask: 0,
    };
    assert_eq!(
        post(&mut pair, add, Data::Gather(&sges[..1])),
        Err(PostError::Length)
    );
    for _ in 0..128 {
        assert_eq!(post(&mut pair, SEND, Data::Gather(&[])), Ok(()));
    }
    assert_eq!(
        post(&mut pair, SEND, Data::Gather(&[])),
        Err(PostError::Full(128))
    );
    assert_eq!(pair.a.qp.state(), QpState::Rts);
}

#[test]
fn drained_queue_raises_event_and_resumes() {
    let mut pair = Pair::roce();
    let write = SendOp::Write {
        remote: pair.b.remote(0),
        immediate: None,
    };
    let gather = [pair.a.sge(0, 5000)];
    pair.a.post(1, write, &gather);
    let begun = transmit(&pair.a.qp, 500, pair.now, &mut pair.a.out);
    pair.a.qp.modify(QpState::Sqd, &mut pair.a.out).unwrap();
    pair.a.post(2, write, &gather);
    assert!(pair.a.events().is_empty(), "not drained yet");
    feed(&pair.b.qp, &begun, pair.now, &mut pair.b.out);
    pair.run();
    assert_eq!(pair.a.events(), [crate::Event::SqDrained { qp: 1 }]);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(2, Status::Success)]);
}

/// The completion of a request comes before that of the message that answers it, as did the peer's acknowledgement: programs that
/// have one queue for both rely on that order.
#[test]
fn send_completion_precedes_reply_completion() {
    for crc in [false, true] {
        let setup = Setup {
            crc,
            ..Setup::default()
        };
        let mut pair = Pair::new(setup);
        pair.b.receive(1, &[pair.b.sge(0, 64)]);
        pair.a.receive(2, &[pair.a.sge(0, 64)]);
        pair.a.post(3, SEND, &[pair.a.sge(64, 64)]);
        let bytes = transmit(&pair.a.qp, 777, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        pair.b.post(4, SEND, &[pair.b.sge(64, 64)]);
        let bytes = transmit(&pair.b.qp, 777, pair.now, &mut pair.b.out);
        let init = pair.a.qp.init();
        for cq in [&init.send_cq, &init.recv_cq] {
            cq.arm(Arm::Next);
        }
        let _ = pair.a.events();
        assert_eq!(
            feed(&pair.a.qp, &bytes, pair.now, &mut pair.a.out),
            bytes.len()
        );
        let raised = pair.a.events().into_iter().map(|event| match event {
            Event::Completion { cq, .. } => cq,
            other => panic!("{other:?}"),
        });
        assert_eq!(raised.collect::<Vec<u32>>(), [10, 11]);
    }
}

/// The acknowledgement that overflows the send queue's completions and the message behind it arrive in the same bytes: the
/// receives complete in posting order nevertheless, the one with the message successfully. (`verbena-sim --adapters`, 7009684.)
#[test]
fn an_overflow_keeps_receive_completions_in_order() {
    let with_immediate = SendOp::Send {
        invalidate: None,
        immediate: Some(7),
    };
    // Without a checksum the first takes the fast path.
    for (op, crc) in [(SEND, false), (SEND, true), (with_immediate, true)] {
        let mut pair = Pair::new(Setup {
            cq_size: 2,
            crc,
            ..Setup::default()
        });
        pair.a.receive(10, &[pair.a.sge(0, 64)]);
        pair.a.receive(11, &[pair.a.sge(64, 64)]);
        let to = write(pair.b.remote(0));
        for id in 0..3 {
            pair.a.post(id, to, &[]);
        }
        let bytes = transmit(&pair.a.qp, 777, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        pair.b.post(4, op, &[pair.b.sge(64, 64)]);
        let bytes = transmit(&pair.b.qp, 777, pair.now, &mut pair.b.out);
        feed(&pair.a.qp, &bytes, pair.now, &mut pair.a.out);
        assert_eq!(pair.a.qp.state(), QpState::Err);
        let received = pair.a.received();
        let received: Vec<(u64, Status)> = received.iter().map(|w| (w.id, w.status)).collect();
        let expected = [(10, Status::Success), (11, Status::WrFlushErr)];
        assert_eq!(received, expected, "{op:?}, checksums {crc}");
    }
}
