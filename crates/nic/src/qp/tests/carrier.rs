//! Tests of how bytes are moved: what is transferred directly, what happens if memory is revoked meanwhile, and concurrent calls.

use std::sync::atomic::{AtomicBool, Ordering};

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, Bind, Policy, Sources, Targets, WindowType};
use verbena_stream::Time;
use verbena_wire::{Stag, To};

use crate::carrier::{Carrier, IoOutcome, MemoryCarrier};
use crate::qp::{Acks, Receiving, Sending};
use crate::state::{QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, direct, poll, read, transmit, write};
use crate::wc::Status;
use crate::wr::{Data, Flags, ReceiveWr, RemoteAddr, SendOp, SendWr, Sge};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7) as u8).collect()
}

/// M20: without checksums only headers and trailers pass a buffer, on either side.
#[test]
fn long_payloads_bypass_the_stage() {
    let mut pair = Pair::new(direct());
    let before = (pair.a.qp.counters(), pair.b.qp.counters());
    pair.a.memory.write(0, &pattern(8000));
    let gather = [pair.a.sge(0, 3000), pair.a.sge(3000, 5000)];
    let to = write(pair.b.remote(64));
    pair.a.post(1, to, &gather);
    pair.run();
    let sink = [pair.a.sge(0, 8000)];
    let from = read(pair.b.remote(64));
    pair.a.post(2, from, &sink);
    pair.run();
    assert_eq!(pair.b.memory.read(64, 8000), pattern(8000));
    let done = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(pair.a.statuses(), done);
    for (after, before) in [
        (pair.a.qp.counters(), before.0),
        (pair.b.qp.counters(), before.1),
    ] {
        let direct = after.bytes_direct - before.bytes_direct;
        // Each way 8000 bytes of payload in nine frames; the carrier of this test cuts at 777 bytes, and the rest
        // of a run is copied once it is short.
        assert!(direct > 14_000 && direct <= 16_000, "{direct}");
    }
}

#[test]
fn with_checksums_everything_is_staged() {
    let mut pair = Pair::new(Setup {
        crc: true,
        ..direct()
    });
    let (gather, op) = ([pair.a.sge(0, 4000)], write(pair.b.remote(0)));
    pair.a.post(1, op, &gather);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.a.qp.counters().bytes_direct, 0);
    assert_eq!(pair.b.qp.counters().bytes_direct, 0);
}

/// A program that keeps changing what it sends does not break its connection, with or without CRC.
#[test]
fn changing_memory_during_send_is_allowed() {
    for crc in [false, true] {
        let mut pair = Pair::new(Setup { crc, ..direct() });
        let (gather, op) = ([pair.a.sge(0, 4000)], write(pair.b.remote(0)));
        pair.a.post(1, op, &gather);
        for i in 0..40 {
            pair.a.memory.write(i * 100, &[i as u8; 100]);
            let bytes = transmit(&pair.a.qp, 130, pair.now, &mut pair.a.out);
            crate::testing::feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        }
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    }
}

/// A region of A's that can be deregistered, and a write of it.
fn revocable(pair: &mut Pair, len: u32) -> Stag {
    let memory = &pair.a.memory;
    let start = To::new(memory.at());
    let stag = pair
        .a
        .tpt
        .register_shared(memory.stag(), start, PD, Access::LOCAL_READ)
        .unwrap();
    let gather = [Sge {
        addr: memory.at(),
        len,
        stag,
    }];
    let op = write(pair.b.remote(0));
    pair.a.post(1, op, &gather);
    stag
}

#[test]
fn deregistered_payload_is_not_sent() {
    let mut pair = Pair::new(direct());
    let stag = revocable(&mut pair, 900);
    // It is framed, and nothing of it has been sent.
    assert_eq!(
        pair.a
            .qp
            .transmit(&mut MemoryCarrier::with_room(0), pair.now, &mut pair.a.out),
        Sending::Blocked
    );
    pair.a.tpt.deregister(stag).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::LocProtErr)]);
    assert_eq!(pair.b.memory.read(0, 900), vec![0; 900]);
    assert!(!pair.a.qp.wants_reset(), "a Terminate says why");
    assert!(
        pair.b
            .qp
            .cause()
            .unwrap()
            .contains("the peer sent Terminate")
    );
}

#[test]
fn unfinishable_frame_resets_the_connection() {
    let mut pair = Pair::new(direct());
    let stag = revocable(&mut pair, 900);
    let begun = transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
    assert_eq!(begun.len(), 300);
    pair.a.tpt.deregister(stag).unwrap();
    let mut io = MemoryCarrier::with_room(1000);
    let sending = pair.a.qp.transmit(&mut io, pair.now, &mut pair.a.out);
    assert_eq!((sending, io.output.len()), (Sending::Ended, 0));
    assert!(pair.a.qp.wants_reset() && pair.a.qp.wants_close());
    assert_eq!(pair.a.statuses(), [(1, Status::LocProtErr)]);
}

/// Flushed requests release their memory at once; a frame that the peer has in part is finished nevertheless.
#[test]
fn flushed_request_releases_its_memory() {
    let mut pair = Pair::new(direct());
    let stag = revocable(&mut pair, 900);
    let begun = transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
    crate::testing::feed(&pair.b.qp, &begun, pair.now, &mut pair.b.out);
    pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
    assert_eq!(pair.a.statuses(), [(1, Status::WrFlushErr)]);
    pair.a.tpt.deregister(stag).unwrap();
    pair.run();
    assert!(!pair.a.qp.wants_reset() && pair.a.qp.wants_close());
    assert_eq!(pair.b.qp.cause(), None, "a whole frame, and no complaint");
}

/// Returns the bytes that arrived, and then reports that a target is not mapped.
struct Faulty<'a>(MemoryCarrier<'a>);

impl Carrier for Faulty<'_> {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        if targets.spans().len() > 1 {
            return IoOutcome::Fault;
        }
        self.0.read(targets)
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        IoOutcome::Fault
    }
}

#[test]
fn fault_while_receiving_fails_queue_pair() {
    let mut pair = Pair::new(direct());
    let to = [pair.b.sge(0, 900)];
    pair.b.receive(5, &to);
    let from = [pair.a.sge(0, 900)];
    pair.a.post(1, SEND, &from);
    let bytes = transmit(&pair.a.qp, 1000, pair.now, &mut pair.a.out);
    let (head, rest) = bytes.split_at(40);
    crate::testing::feed(&pair.b.qp, head, pair.now, &mut pair.b.out);
    let mut faulty = Faulty(MemoryCarrier::with_input(rest));
    let (now, out) = (pair.now, &mut pair.b.out);
    let receiving = pair.b.qp.receive(&mut faulty, &mut [0; 100], now, out);
    assert_eq!(receiving.receiving, Receiving::Some(0));
    assert_eq!(pair.b.received()[0].status, Status::LocProtErr);
    assert_eq!(pair.b.qp.state(), QpState::Err);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemOpErr)]);
}

#[test]
fn fault_while_sending_fails_queue_pair() {
    let mut pair = Pair::new(direct());
    revocable(&mut pair, 900);
    let mut faulty = Faulty(MemoryCarrier::default());
    let sending = pair.a.qp.transmit(&mut faulty, pair.now, &mut pair.a.out);
    assert_eq!(sending, Sending::Ended);
    assert_eq!(pair.a.statuses(), [(1, Status::LocProtErr)]);
    assert!(pair.a.qp.wants_reset());
}

/// docs/connections.md: requests before the refused one are answered first.
#[test]
fn refused_request_gets_the_error_status() {
    let mut pair = Pair::roce();
    pair.b.memory.write(0, b"there");
    let (good, sink) = (read(pair.b.remote(0)), [pair.a.sge(0, 5)]);
    let add = SendOp::FetchAdd {
        remote: pair.b.remote(8),
        add: 3,
        mask: 0,
    };
    let result = [pair.a.sge(8, 8)];
    let bad = write(RemoteAddr {
        stag: Stag::new(0xdead_0000),
        to: To::new(0),
    });
    let source = [pair.a.sge(100, 8)];
    pair.a.post(1, good, &sink);
    pair.a.post(2, add, &result);
    pair.a.post(3, bad, &source);
    pair.a.post(4, good, &sink);
    // All of it arrives before anything is answered.
    let bytes = transmit(&pair.a.qp, 10_000, pair.now, &mut pair.a.out);
    crate::testing::feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    assert_eq!(pair.b.events(), [Event::QpAccess { qp: 2 }]);
    pair.run();
    let expected = [
        (1, Status::Success),
        (2, Status::Success),
        (3, Status::RemAccessErr),
        (4, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), expected);
    assert_eq!(pair.a.memory.read(0, 5), b"there");
    assert_eq!(pair.b.memory.read(8, 8), 3_u64.to_ne_bytes());
    assert_eq!(
        pair.b.events(),
        [Event::Disconnected { qp: 2 }],
        "told once"
    );
}

/// docs/connections.md: an unreliable connection drops what it cannot receive; the receive waits for the next message.
#[test]
fn unreliable_connection_drops_unreceivable_messages() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    let small = [pair.b.sge(0, 10)];
    pair.b.receive(1, &small);
    let invalid = SendOp::Send {
        invalidate: Some(Stag::new(0xdead_0000)),
        immediate: None,
    };
    let (long, short) = ([pair.a.sge(0, 2500)], [pair.a.sge(0, 10)]);
    pair.a.memory.write(0, b"0123456789");
    pair.a.post(1, SEND, &long);
    pair.a.post(2, invalid, &short);
    pair.run();
    assert!(pair.b.received().is_empty() && pair.b.events().is_empty());
    pair.a.post(3, SEND, &short);
    pair.run();
    let received = pair.b.received();
    assert_eq!(
        (received.len(), received[0].id, received[0].len),
        (1, 1, 10)
    );
    assert_eq!(pair.b.memory.read(0, 10), b"0123456789");
    assert!(pair.a.statuses().iter().all(|s| s.1 == Status::Success));
}

/// M7: where regions are closed to peers, the sink of a classic read is a window.
#[test]
fn windows_only_classic_read_needs_window_sink() {
    for read_v2 in [false, true] {
        let mut setup = Setup {
            policy: Policy::WindowsOnly,
            ..Setup::default()
        };
        if !read_v2 {
            setup.features = verbena_wire::ext::Features::SEND_IMM;
        }
        let mut pair = Pair::new(setup);
        let window_of = |side: &crate::testing::Side, access| {
            let window = side.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
            let bind = Bind {
                window,
                region: side.memory.stag(),
                addr: side.memory.at(),
                len: 1000,
                access,
                pd: PD,
                qp: side.qp.number(),
                key: 0x11,
                zero_based: false,
                one_touch: false,
            };
            side.tpt.bind(&bind).unwrap()
        };
        pair.b.memory.write(0, b"there");
        let from = read(RemoteAddr {
            stag: window_of(&pair.b, Access::REMOTE_READ),
            to: To::new(pair.b.memory.at()),
        });
        let sink = window_of(&pair.a, Access::REMOTE_WRITE);
        let at = pair.a.memory.at();
        let (stag, len) = (sink, 5);
        let (window, region) = (
            [Sge {
                addr: at,
                len,
                stag,
            }],
            [pair.a.sge(0, 5)],
        );
        let (fits, not) = if read_v2 {
            (region, window)
        } else {
            (window, region)
        };
        pair.a.post(1, from, &fits);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::Success)], "{read_v2}");
        assert_eq!(pair.a.memory.read(0, 5), b"there");
        pair.a.post(2, from, &not);
        pair.run();
        assert_eq!(pair.a.statuses(), [(2, Status::LocProtErr)], "{read_v2}");
    }
}

/// Threads that post, one that drives both ends, one that queries: everything completes, each thread's requests in order.
#[test]
fn concurrent_posters_complete_in_order() {
    const EACH: u64 = 3000;
    let pair = Pair::new(Setup {
        cq_size: 2 * EACH as usize,
        ..Setup::default()
    });
    let (a, b) = (&pair.a, &pair.b);
    let over = AtomicBool::new(false);
    let piece = |side: &crate::testing::Side| [side.sge(0, 16)];
    let (from, to) = (piece(a), piece(b));
    let (sent, received) = std::thread::scope(|scope| {
        let posters: Vec<_> = (0..2_u64)
            .map(|poster| {
                let data = Data::Gather(&from);
                scope.spawn(move || {
                    for i in 0..EACH {
                        let wr = SendWr {
                            id: poster << 32 | i,
                            op: SEND,
                            flags: Flags::SIGNALED,
                            data,
                        };
                        while a.qp.post_send(&wr, &mut Outbox::new()).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let receiver = scope.spawn(|| {
            for id in 0..2 * EACH {
                let wr = ReceiveWr { id, scatter: &to };
                while b.qp.post_receive(&wr, &mut Outbox::new()).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(a.qp.state(), QpState::Rts);
                b.qp.view();
            }
        });
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let (mut out, now) = (Outbox::new(), Time::ZERO);
        while sent.len() < 2 * EACH as usize {
            for (from, to) in [(a, b), (b, a)] {
                let bytes = transmit(&from.qp, 5000, now, &mut out);
                crate::testing::feed(&to.qp, &bytes, now, &mut out);
            }
            sent.extend(poll(&a.qp.init().send_cq));
            received.extend(poll(&b.qp.init().recv_cq));
        }
        over.store(true, Ordering::Relaxed);
        for thread in posters {
            thread.join().unwrap();
        }
        receiver.join().unwrap();
        (sent, received)
    });
    assert!(sent.iter().all(|wc| wc.status == Status::Success));
    for poster in 0..2 {
        let ids = sent.iter().map(|wc| wc.id).filter(|id| id >> 32 == poster);
        assert!(ids.eq((0..EACH).map(|i| poster << 32 | i)));
    }
    assert!(received.iter().map(|wc| wc.id).eq(0..2 * EACH));
}

/// A request whose own memory is refused is the first to fail: requests sent before it end first.
#[test]
fn deregistered_request_fails_after_earlier_ones() {
    let mut pair = Pair::new(direct());
    let good = [pair.a.sge(0, 900)];
    let op = write(pair.b.remote(0));
    for id in 10..13 {
        pair.a.post(id, op, &good);
    }
    let stag = revocable(&mut pair, 5000);
    pair.a.post(20, op, &good);
    // Three requests of one frame each have been sent, and nothing is acknowledged yet.
    let sent = transmit(&pair.a.qp, 3 * 920, pair.now, &mut pair.a.out);
    pair.a.tpt.deregister(stag).unwrap();
    pair.a
        .qp
        .transmit(&mut MemoryCarrier::with_room(0), pair.now, &mut pair.a.out);
    crate::testing::feed(&pair.b.qp, &sent, pair.now, &mut pair.b.out);
    pair.run();
    let statuses = pair.a.statuses();
    let failed = statuses.iter().position(|s| s.1 != Status::Success);
    assert_eq!(failed, Some(3), "{statuses:?}");
    assert_eq!(statuses[3], (1, Status::LocProtErr));
    assert_eq!(statuses[4], (20, Status::WrFlushErr));
}

/// A thread that has received owes acknowledgements. If it finds the lock held by another that would send them only along with
/// other frames, they are sent nevertheless: there may be no later call.
#[test]
fn acks_deferred_by_contention_are_sent() {
    /// No bytes arrive; meanwhile another thread has just received, and wants to acknowledge.
    struct TransmitDuringRead<'a>(&'a crate::qp::Qp, Time);
    impl Carrier for TransmitDuringRead<'_> {
        fn read(&mut self, _: &mut Targets<'_>) -> IoOutcome {
            let (mut io, mut out) = (MemoryCarrier::with_room(1000), Outbox::new());
            let sent = self.0.try_transmit(&mut io, Acks::Now, self.1, &mut out);
            assert_eq!(
                (sent, io.output.len()),
                (None, 0),
                "another thread holds the lock"
            );
            IoOutcome::WouldBlock
        }

        fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
            IoOutcome::WouldBlock
        }
    }

    let mut pair = Pair::roce();
    let (scatter, gather) = ([pair.b.sge(0, 8)], [pair.a.sge(0, 8)]);
    pair.b.receive(1, &scatter);
    pair.a.post(2, SEND, &gather);
    let now = pair.now;
    let came = transmit(&pair.a.qp, usize::MAX, now, &mut pair.a.out);
    crate::testing::feed(&pair.b.qp, &came, now, &mut pair.b.out);
    let (qp, out) = (&pair.b.qp, &mut pair.b.out);
    let along = || {
        let mut io = MemoryCarrier::with_room(1000);
        qp.try_transmit(&mut io, Acks::Piggyback, now, &mut Outbox::new());
        io.output
    };
    assert!(along().is_empty(), "they wait for the receiving thread");
    qp.receive(&mut TransmitDuringRead(qp, now), &mut [0; 100], now, out);
    let went = along();
    assert!(!went.is_empty());
    assert!(along().is_empty(), "once");
    crate::testing::feed(&pair.a.qp, &went, now, &mut pair.a.out);
    assert_eq!(pair.a.statuses(), [(2, Status::Success)]);
}
