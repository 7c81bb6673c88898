//! The low layer: lists, halves on two threads, sleeping on a descriptor, memory of the program, and isolation.
//! All queue pairs are connected over loopback.

use std::os::fd::AsFd;
use std::time::Duration;

use verbena::events::HandlerOptions;
use verbena::low::{
    Arm, Cq, Data, Flags, FlushScope, Limits, Pd, PostError, PostRecvError, PostSendError, Qp,
    QpOptions, QpState, RecvWr, SendOp, SendWr, Wc, WcOp,
};
use verbena::{Access, Device, Memory, Status};

use crate::common::low::{SEND, complete, connect_qps, wr};
use crate::common::{device, pattern};

struct Side {
    qp: Qp,
    sent: Cq,
    received: Cq,
    memory: Memory,
    pd: Pd,
    device: Device,
}

impl Side {
    fn new() -> Side {
        let device = device(&[]);
        let pd = device.pd().unwrap();
        let (sent, received) = (device.cq(4096).unwrap(), device.cq(4096).unwrap());
        let options = QpOptions::default().limits(Limits {
            sends: 512,
            receives: 512,
            ..Limits::default()
        });
        let qp = Qp::new(&pd, &sent, &received, options).unwrap();
        let memory = pd.memory(1 << 20, Access::ALL).unwrap();
        Side {
            qp,
            sent,
            received,
            memory,
            pd,
            device,
        }
    }
}

fn pair() -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    let listener = b.device.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &a.qp, &b.qp);
    (a, b)
}

#[test]
fn one_list_may_hold_every_operation() {
    let (a, b) = pair();
    let data = pattern(1000, 5);
    a.memory.write_at(0, &data).unwrap();
    let scatter = [
        b.memory.sge(5000, 400).unwrap(),
        b.memory.sge(9000, 600).unwrap(),
    ];
    b.qp.post_recv(&[RecvWr {
        id: 9,
        scatter: &scatter,
    }])
    .unwrap();
    let remote = b.memory.remote_addr(0).unwrap();
    let word = b.memory.remote_addr(2048).unwrap();
    let all = [a.memory.sge(0, 1000).unwrap()];
    let back = [a.memory.sge(4000, 1000).unwrap()];
    let (added, swapped) = (
        [a.memory.sge(8000, 8).unwrap()],
        [a.memory.sge(8008, 8).unwrap()],
    );
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let add = SendOp::FetchAdd {
        remote: word,
        add: 4,
        mask: 0,
    };
    let swap = SendOp::CmpSwap {
        remote: word,
        compare: 4,
        compare_mask: u64::MAX,
        swap: 77,
        swap_mask: u64::MAX,
    };
    a.qp.post_send(&[
        wr(1, SEND, Data::Gather(&all)),
        wr(2, write, Data::Gather(&all)),
        wr(3, read, Data::Gather(&back)),
        wr(4, add, Data::Gather(&added)),
        wr(5, swap, Data::Gather(&swapped)),
        // Without a fence the write may take effect before the read.
        SendWr {
            flags: Flags::SIGNALED | Flags::FENCE,
            ..wr(6, write, Data::Inline(b"inline"))
        },
    ])
    .unwrap();
    let done = complete(&a.sent, 6);
    let ends: Vec<_> = done.iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(ends, [1, 2, 3, 4, 5, 6].map(|id| (id, Status::Success)));
    let received = complete(&b.received, 1)[0];
    assert_eq!(
        (received.id, received.op, received.len),
        (9, WcOp::Receive, 1000)
    );
    let mut got = vec![0; 1000];
    b.memory.read_at(5000, &mut got[..400]).unwrap();
    b.memory.read_at(9000, &mut got[400..]).unwrap();
    assert_eq!(got, data);
    a.memory.read_at(4000, &mut got).unwrap();
    assert_eq!(got, data);
    assert_eq!(a.memory.load(8000).unwrap(), 0);
    assert_eq!(a.memory.load(8008).unwrap(), 4);
    assert_eq!(b.memory.load(2048).unwrap(), 77);
    assert_eq!(b.memory.get::<[u8; 6]>(0).unwrap(), *b"inline");
}

/// M15: atomics on fields of a word, which rdma-core's verbs have no request for (docs/dropin.md).
#[test]
fn masked_atomics_change_only_their_fields() {
    let (a, b) = pair();
    let remote = b.memory.remote_addr(2048).unwrap();
    b.memory.store(2048, 0x0000_0001_ffff_ffff).unwrap();
    let results = [
        [a.memory.sge(8000, 8).unwrap()],
        [a.memory.sge(8008, 8).unwrap()],
    ];
    // Two fields of 32 bits: the carry of the lower one is dropped.
    let add = SendOp::FetchAdd {
        remote,
        add: 0x0000_0005_0000_0001,
        mask: 0x8000_0000_8000_0000,
    };
    // Compares the upper field only, and replaces the lower one.
    let swap = SendOp::CmpSwap {
        remote,
        compare: 0x0000_0006_1234_5678,
        compare_mask: 0xffff_ffff_0000_0000,
        swap: 0xaaaa_aaaa_0000_0077,
        swap_mask: 0x0000_0000_ffff_ffff,
    };
    a.qp.post_send(&[
        wr(1, add, Data::Gather(&results[0])),
        wr(2, swap, Data::Gather(&results[1])),
    ])
    .unwrap();
    let done = complete(&a.sent, 2);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(a.memory.load(8000).unwrap(), 0x0000_0001_ffff_ffff);
    assert_eq!(a.memory.load(8008).unwrap(), 0x0000_0006_0000_0000);
    assert_eq!(b.memory.load(2048).unwrap(), 0x0000_0006_0000_0077);
}

#[test]
fn atomic_write_and_flush_fit_one_list() {
    let (a, b) = pair();
    a.memory.write_at(0, b"a record").unwrap();
    let piece = [a.memory.sge(0, 8).unwrap()];
    let remote = b.memory.remote_addr(64).unwrap();
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let flush = |scope| SendOp::Flush { remote, scope };
    let flag = SendOp::AtomicWrite {
        remote: b.memory.remote_addr(0).unwrap(),
    };
    let none = Data::Gather(&[]);
    a.qp.post_send(&[
        wr(1, write, Data::Gather(&piece)),
        wr(2, flush(FlushScope::Range { len: 8 }), none),
        wr(3, flag, Data::Inline(&1_u64.to_ne_bytes())),
        wr(4, flush(FlushScope::Region), none),
    ])
    .unwrap();
    let done = complete(&a.sent, 4);
    let ends: Vec<_> = done.iter().map(|wc| (wc.id, wc.op, wc.status)).collect();
    let ops = [WcOp::Write, WcOp::Flush, WcOp::AtomicWrite, WcOp::Flush];
    let expected: Vec<_> = (1..)
        .zip(ops)
        .map(|(id, op)| (id, op, Status::Success))
        .collect();
    assert_eq!(ends, expected);
    assert_eq!(b.memory.load(0).unwrap(), 1);
    assert_eq!(b.memory.get::<[u8; 8]>(64).unwrap(), *b"a record");
}

/// N1: every part, both ports, outstanding work, counters, timeouts, and the first cause of failure.
#[test]
fn query_returns_all_of_queue_pair() {
    let (a, b) = pair();
    let handler = a.device.set_handler(&HandlerOptions::default()).unwrap();
    a.received.set_handler(Some(&handler)).unwrap();
    a.qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_secs(77)));
    let (ours, theirs) = (a.qp.query().unwrap(), b.qp.query().unwrap());
    let parts = ours.qp.init_attr;
    assert_eq!(
        (parts.send_cq, parts.recv_cq),
        (a.sent.number(), a.received.number())
    );
    assert_eq!((parts.limits.sends, parts.srq), (512, None));
    assert_eq!(ours.send_handler, None);
    assert_eq!(ours.recv_handler.map(|id| id.0), Some(handler.id()));
    assert_eq!(ours.attr.peer_timeout, Some(Duration::from_secs(77)));
    assert_eq!(ours.qp.view.state, QpState::Rts);
    assert!(ours.peer_addr.is_some() && ours.peer_addr == theirs.local_addr);
    assert!(ours.local_addr.is_some() && ours.local_addr == theirs.peer_addr);
    let queue = a.received.query().unwrap();
    assert_eq!(
        (queue.number, queue.cq.users),
        (a.received.number(), 1),
        "{queue:?}"
    );
    assert_eq!(queue.handler.map(|id| id.0), Some(handler.id()));

    // A receive that waits, and a Write that the peer refuses.
    let (id, scatter) = (1, &[][..]);
    a.qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
    assert_eq!(a.qp.query().unwrap().qp.view.receives, 1);
    let op = SendOp::Write {
        remote: a.memory.remote_addr(0).unwrap(),
        immediate: None,
    };
    a.qp.post_send(&[wr(2, op, Data::Inline(b"x"))]).unwrap();
    assert_eq!(complete(&a.sent, 1)[0].status, Status::RemAccessErr);
    let view = a.qp.query().unwrap().qp.view;
    assert_eq!((view.state, view.counters.messages_out), (QpState::Err, 1));
    assert!(view.cause.is_some(), "{view:?}");
}

#[test]
fn initial_completion_queues_outlive_their_handles() {
    let device = device(&[("initial_cqs", "2"), ("initial_cq_entries", "64")]);
    let pd = device.pd().unwrap();
    let memory = pd.memory(64, Access::ALL).unwrap();
    let used = device.used().cqs;
    assert_eq!(used, 2);
    let first = device.initial_cq(0).unwrap().unwrap();
    let second = device.initial_cq(1).unwrap().unwrap();
    assert_ne!(first.number(), second.number());
    assert!(device.initial_cq(2).unwrap().is_none());
    let a = Qp::new(&pd, &first, &first, QpOptions::default()).unwrap();
    let b = Qp::new(&pd, &second, &second, QpOptions::default()).unwrap();
    connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
    let scatter = &[memory.sge(0, 64).unwrap()][..];
    b.post_recv(&[RecvWr { id: 7, scatter }]).unwrap();
    a.post_send(&[wr(1, SEND, Data::Inline(b"kept"))]).unwrap();
    assert_eq!(complete(&first, 1)[0].status, Status::Success);
    // The completion stays without a handle of its queue.
    drop(second);
    let again = device.initial_cq(1).unwrap().unwrap();
    assert_eq!(complete(&again, 1)[0].id, 7);
    drop((a, b, first, again));
    assert_eq!(device.used().cqs, used);
}

#[test]
fn too_many_initial_completion_queues_are_refused() {
    let mut config = verbena::Config::default();
    config.set("initial_cqs", "5").unwrap();
    config.set("max_cqs", "4").unwrap();
    let error = Device::with(config).unwrap_err().to_string();
    assert!(error.contains("completion queue"), "{error}");
}

#[test]
fn post_error_gives_index_of_refused_request() {
    let (a, _b) = pair();
    let good = wr(1, SEND, Data::Inline(b"x"));
    let bad = wr(2, SEND, Data::Inline(&[0; 4000]));
    let refused = a.qp.post_send(&[good, good, bad, good]);
    assert!(
        matches!(
            refused,
            Err(PostSendError {
                posted: 2,
                source: PostError::Inline { .. }
            })
        ),
        "{refused:?}"
    );
}

/// One thread sends, one posts receives, one polls completions of both kinds; in both directions at once.
#[test]
fn split_halves_work_on_separate_threads() {
    let (a, b) = pair();
    const COUNT: u64 = 2000;
    let run = |side: Side| {
        let Side {
            qp,
            sent,
            received,
            memory,
            pd,
            device,
        } = side;
        let (mut sender, mut receiver) = qp.split();
        let (post, posted) = (memory.clone(), memory.clone());
        std::thread::spawn(move || {
            let _keep = (pd, device);
            std::thread::scope(|scope| {
                // The halves are returned: the queue pair lives as long as one of them does.
                let sends = scope.spawn(move || {
                    for id in 0..COUNT {
                        let bytes = id.to_be_bytes();
                        let list = [wr(id, SEND, Data::Inline(&bytes))];
                        while let Err(PostSendError { source: error, .. }) = sender.post(&list) {
                            assert!(matches!(error, PostError::Full(_)), "{error}");
                            std::thread::yield_now();
                        }
                    }
                    sender
                });
                let receives = scope.spawn(move || {
                    for id in 0..COUNT {
                        let scatter = [post.sge(id as usize * 8, 8).unwrap()];
                        let list = [RecvWr {
                            id,
                            scatter: &scatter,
                        }];
                        while let Err(PostRecvError { source: error, .. }) = receiver.post(&list) {
                            assert!(matches!(error, PostError::Full(_)), "{error}");
                            std::thread::yield_now();
                        }
                    }
                    receiver
                });
                let sent = scope.spawn(move || complete(&sent, COUNT as usize));
                let received = complete(&received, COUNT as usize);
                for (id, wc) in (0..).zip(&received) {
                    assert_eq!((wc.id, wc.status), (id, Status::Success));
                    assert_eq!(
                        posted.get::<[u8; 8]>(id as usize * 8).unwrap(),
                        id.to_be_bytes()
                    );
                }
                for (id, wc) in (0..).zip(sent.join().unwrap()) {
                    assert_eq!((wc.id, wc.status), (id, Status::Success));
                }
                let (sender, _receiver) = (sends.join().unwrap(), receives.join().unwrap());
                assert_eq!(sender.view().sends, 0);
            });
        })
    };
    let (a, b) = (run(a), run(b));
    a.join().unwrap();
    b.join().unwrap();
}

#[test]
fn armed_queue_signals_its_descriptor() {
    let (a, b) = pair();
    let _fd = b.received.as_fd();
    for id in 0..20 {
        let scatter = [b.memory.sge(0, 8).unwrap()];
        b.received.arm(Arm::Next);
        b.qp.post_recv(&[RecvWr {
            id,
            scatter: &scatter,
        }])
        .unwrap();
        a.qp.post_send(&[wr(id, SEND, Data::Inline(b"x"))]).unwrap();
        assert!(b.received.take_notification().unwrap());
        let mut some = [Wc::default(); 4];
        assert_eq!(b.received.poll(&mut some), 1);
        assert_eq!(some[0].id, id);
        complete(&a.sent, 1);
    }
}

/// Why the slices of buffers are sound: the low layer cannot use memory of the high layer.
#[test]
fn low_layer_cannot_use_high_layer_memory() {
    let (a, _b) = pair();
    let hidden = a.device.memory(64, Access::ALL).unwrap();
    let sge = [hidden.sge(0, 8).unwrap()];
    a.qp.post_send(&[wr(1, SEND, Data::Gather(&sge))]).unwrap();
    assert_eq!(complete(&a.sent, 1)[0].status, Status::LocProtErr);
}
