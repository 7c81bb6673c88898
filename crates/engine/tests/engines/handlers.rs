//! Completion handlers (N2 to N9): which one is called, on which processor, in which order, and that no notification is lost or doubled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use verbena_engine::notify::handler::{Affinity, Callback, Class, Completion};
use verbena_engine::{Engine, Error, HandlerId, HandlerOptions, sys};
use verbena_events::eqe::{Cause, ChannelEvent};
use verbena_events::interrupts::{At, Origin};
use verbena_events::moderation::{Hold, Moderation};
use verbena_nic::wr::Data;
use verbena_nic::{Arm, Flags, QpState, Reason, SendWr, Status, Wc};

use crate::common::{SEND, Side, TEST_TIMEOUT, config, connect_sides, wait};

fn callback(work: impl Fn(Completion) + Send + Sync + 'static) -> HandlerOptions {
    HandlerOptions {
        callback: Some(Arc::new(work) as Callback),
        ..HandlerOptions::default()
    }
}

/// A handler that forwards its notifications to a channel.
fn forwarding_handler() -> (HandlerOptions, mpsc::Receiver<Completion>) {
    let (tell, notified) = mpsc::channel();
    let tell = Mutex::new(tell);
    let options = callback(move |completion| tell.lock().unwrap().send(completion).unwrap());
    (options, notified)
}

/// Two handlers on one processor: a bulk one, which gets the events of B's queue now, and one of the latency class.
fn bulk_then_latency(b: &Side, bulk: HandlerOptions) -> (HandlerId, mpsc::Receiver<Completion>) {
    let processor = *sys::processors().unwrap().last().unwrap();
    let set = |options: HandlerOptions, class| {
        let affinity = Affinity::Processors(vec![processor]);
        let options = HandlerOptions {
            affinity,
            class,
            ..options
        };
        b.engine.set_handler(&options).unwrap()
    };
    let bulk = set(bulk, Class::Bulk);
    let (latency, notified) = forwarding_handler();
    let latency = set(latency, Class::Latency);
    b.cq.set_handler(Some(bulk)).unwrap();
    (latency, notified)
}

/// A message from A to B, whose queue is armed for it.
fn notify(a: &Side, b: &Side, arm: Arm) {
    b.receive(1, &[b.sge(0, 64)]);
    b.cq.arm(arm);
    a.post(2, SEND, &[a.sge(0, 8)]);
}

fn drain(side: &Side) {
    let mut some = [Wc::default(); 16];
    while side.cq.poll(&mut some) > 0 {}
}

#[test]
fn handlers_are_limited_and_ids_reused() {
    let engine = Engine::new(config(&[("handlers", "3")])).unwrap();
    assert_eq!(engine.handler_limit(), 3);
    let one = || engine.set_handler(&HandlerOptions::default());
    let ids: Vec<HandlerId> = (0..3).map(|_| one().unwrap()).collect();
    assert_eq!(ids, [HandlerId(0), HandlerId(1), HandlerId(2)]);
    let more = one();
    assert!(
        matches!(more, Err(Error::TooManyHandlers { limit: 3 })),
        "{more:?}"
    );
    engine.clear_handler(ids[1]).unwrap();
    assert_eq!(one().unwrap(), HandlerId(1));
    let usual = Engine::new(config(&[])).unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(usize::from(usual.handler_limit()), processors, "N2");
}

/// N2, N5: more handlers than the flat map has vectors, each with a vector of its own.
#[test]
fn handlers_may_outnumber_flat_map_vectors() {
    let (a, b) = (Side::new(&[]), Side::new(&[("handlers", "1024")]));
    assert_eq!(b.engine.handler_limit(), 1024);
    let (tell, notified) = mpsc::channel();
    let tell = Arc::new(Mutex::new(tell));
    let one = || {
        let tell = tell.clone();
        let options =
            callback(move |received| tell.lock().unwrap().send(received.handler).unwrap());
        b.engine.set_handler(&options).unwrap()
    };
    let ids: Vec<HandlerId> = (0..1024).map(|_| one()).collect();
    assert!(b.engine.set_handler(&HandlerOptions::default()).is_err());
    connect_sides(&a, &b);
    // Those whose columns are 32 apart would share a vector of the flat map.
    for at in [0, 28, 29, 31, 32, 61, 253, 254, 1023] {
        b.cq.set_handler(Some(ids[at])).unwrap();
        notify(&a, &b, Arm::Next);
        assert_eq!(notified.recv_timeout(TEST_TIMEOUT).unwrap(), ids[at]);
        drain(&b);
        drain(&a);
    }
    assert!(notified.try_recv().is_err());
}

#[test]
fn invalid_handler_calls_change_nothing() {
    let side = Side::new(&[("handlers", "2")]);
    let engine = &side.engine;
    let unused = HandlerId(1);
    let unknown = |result: Result<(), Error>| {
        assert!(
            matches!(result, Err(Error::NoHandler { id: 1, limit: 2 })),
            "{result:?}"
        );
    };
    unknown(engine.clear_handler(unused));
    unknown(engine.set_class(unused, Class::Bulk));
    unknown(engine.moderate(unused, Moderation::Adaptive));
    unknown(engine.set_handler_affinity(unused, &Affinity::Inline));
    unknown(engine.create_cq_with(16, unused).map(drop));
    unknown(side.cq.set_handler(Some(unused)));
    for (place, says) in [
        (
            vec![4000],
            "processor 4000 does not exist, or this program may not use it",
        ),
        (
            vec![],
            "a completion handler runs on one processor at least",
        ),
    ] {
        let options = HandlerOptions {
            affinity: Affinity::Processors(place),
            ..HandlerOptions::default()
        };
        assert_eq!(engine.set_handler(&options).unwrap_err().to_string(), says);
    }
    assert_eq!(
        engine.set_handler(&HandlerOptions::default()).unwrap(),
        HandlerId(0)
    );
    let channel = Cause::Channel {
        channel: 200,
        what: ChannelEvent::BuffersLow,
        count: 1,
    };
    let injected = engine.inject(channel, Origin::UNSPECIFIED);
    assert_eq!(
        injected.unwrap_err().to_string(),
        "notification: channel 200 does not exist; there are 32"
    );
    let nowhere = engine.inject(
        Cause::Management { parameter: 1 },
        Origin::new(At::Queue(99)),
    );
    // Management events have their own queue in any case.
    nowhere.unwrap();
    let rdma = Cause::CommandDone { command: 1 };
    assert!(engine.inject(rdma, Origin::new(At::Queue(99))).is_err());
    assert_eq!(engine.down(), None);
}

#[test]
fn handler_receives_queue_and_reason() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (options, notified) = forwarding_handler();
    let id = b.engine.set_handler(&options).unwrap();
    b.cq.set_handler(Some(id)).unwrap();
    connect_sides(&a, &b);
    notify(&a, &b, Arm::Next);
    let received = notified.recv_timeout(TEST_TIMEOUT).unwrap();
    let cq = b.cq.number();
    let expected = Completion {
        cq,
        reason: Reason::Next,
        handler: id,
    };
    assert_eq!(received, expected);
    // The completion is in the queue before the handler is called.
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    // A failure notifies a queue that is armed for solicited completions.
    drain(&a);
    b.receive(3, &[]);
    b.cq.arm(Arm::Solicited);
    b.qp.modify(QpState::Err);
    let received = notified.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(received.reason, Reason::Failure);
    assert!(notified.try_recv().is_err(), "once per arming");
}

/// E10: fewer vectors than requested, more, or none: handlers are called all the same.
#[test]
fn handlers_work_with_any_vector_count() {
    for granted in ["0", "1", "2", "4", "256"] {
        let (a, b) = (
            Side::new(&[]),
            Side::new(&[("vectors", granted), ("handlers", "2")]),
        );
        let processor = sys::processors().unwrap()[0];
        for place in [Affinity::Inline, Affinity::Processors(vec![processor])] {
            let (options, notified) = forwarding_handler();
            let id = b
                .engine
                .set_handler(&HandlerOptions {
                    affinity: place,
                    ..options
                })
                .unwrap();
            b.cq.set_handler(Some(id)).unwrap();
            if b.qp.state() == QpState::Reset {
                connect_sides(&a, &b);
            }
            for _ in 0..20 {
                notify(&a, &b, Arm::Next);
                let received = notified.recv_timeout(TEST_TIMEOUT).unwrap();
                assert_eq!((received.cq, received.handler), (b.cq.number(), id));
                b.complete(1);
                drain(&a);
            }
        }
    }
}

/// N1: the answer of a query.
#[test]
fn query_reports_handlers_and_addresses() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let id = b.engine.set_handler(&HandlerOptions::default()).unwrap();
    let info = b.qp.query().unwrap();
    assert_eq!(
        (info.recv_handler, info.local_addr, info.peer_addr),
        (None, None, None)
    );
    b.cq.set_handler(Some(id)).unwrap();
    connect_sides(&a, &b);
    let (there, here) = (a.qp.query().unwrap(), b.qp.query().unwrap());
    assert_eq!((here.send_handler, here.recv_handler), (Some(id), Some(id)));
    assert!(
        here.local_addr.is_some()
            && here.local_addr == there.peer_addr
            && here.peer_addr == there.local_addr
    );
    assert_eq!(here.qp.init_attr.recv_cq, b.cq.number());
    assert_eq!(here.qp.view.state, QpState::Rts);
}

#[test]
fn notify_flag_requests_a_notification() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (options, notified) = forwarding_handler();
    let id = a.engine.set_handler(&options).unwrap();
    a.cq.set_handler(Some(id)).unwrap();
    connect_sides(&a, &b);
    let sges = [a.sge(0, 8)];
    for (id, flags) in [(1, Flags::SIGNALED), (2, Flags::NOTIFY)] {
        b.receive(id, &[b.sge(0, 64)]);
        let wr = SendWr {
            id,
            op: SEND,
            flags,
            data: Data::Gather(&sges),
        };
        a.qp.post_send(&wr).unwrap();
        assert_eq!(a.statuses(1), [(id, Status::Success)]);
    }
    // The queue is not armed: only the second send requests a notification (`Flags::NOTIFY`).
    assert_eq!(
        notified.recv_timeout(TEST_TIMEOUT).unwrap().reason,
        Reason::Next
    );
    assert!(notified.try_recv().is_err());
}

#[test]
fn pinned_handler_runs_only_on_its_processors() {
    let allowed = sys::processors().unwrap();
    for place in [
        vec![allowed[0]],
        vec![*allowed.last().unwrap()],
        allowed.clone(),
    ] {
        for class in Class::ALL {
            let (a, b) = (Side::new(&[]), Side::new(&[]));
            let (tell, notified) = mpsc::channel();
            let tell = Mutex::new(tell);
            let options = HandlerOptions {
                affinity: Affinity::Processors(place.clone()),
                class,
                ..callback(move |_| {
                    let here = sys::processors().unwrap();
                    let name = std::thread::current().name().map(str::to_owned);
                    tell.lock().unwrap().send((here, name)).unwrap();
                })
            };
            let id = b.engine.set_handler(&options).unwrap();
            b.cq.set_handler(Some(id)).unwrap();
            connect_sides(&a, &b);
            notify(&a, &b, Arm::Next);
            let (here, name) = notified.recv_timeout(TEST_TIMEOUT).unwrap();
            assert_eq!(here, place);
            let name = name.unwrap();
            assert!(name.starts_with("verbena-"), "{name}");
        }
    }
}

/// N4, E11: queues change handlers, and handlers their place and class, during notifications.
#[test]
fn no_notification_is_lost_or_doubled_during_moves() {
    const ROUNDS: u32 = 1000;
    let (a, b) = (Side::new(&[]), Side::new(&[("handlers", "4")]));
    let received = Arc::new(AtomicU32::new(0));
    let count = |received: &Arc<AtomicU32>| {
        let received = received.clone();
        callback(move |_| {
            received.fetch_add(1, Ordering::SeqCst);
        })
    };
    let ids: Vec<HandlerId> = (0..3)
        .map(|_| b.engine.set_handler(&count(&received)).unwrap())
        .collect();
    b.cq.set_handler(Some(ids[0])).unwrap();
    connect_sides(&a, &b);
    let (processors, stop) = (sys::processors().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let id = ids[n % 3];
                match n % 7 {
                    0 => b.cq.detach_handler(),
                    1 => b.engine.set_class(id, Class::ALL[n % 3]).unwrap(),
                    2 => {
                        let place = Affinity::Processors(vec![processors[n % processors.len()]]);
                        b.engine.set_handler_affinity(id, &place).unwrap();
                    }
                    3 => b
                        .engine
                        .set_handler_affinity(id, &Affinity::Inline)
                        .unwrap(),
                    4 => {
                        let some = [Moderation::Off, Moderation::Adaptive][n % 2];
                        b.engine.moderate(id, some).unwrap();
                    }
                    5 => {
                        // A handler that is cleared, and another one that gets its id.
                        let passing = b.engine.set_handler(&count(&received)).unwrap();
                        b.cq.set_handler(Some(passing)).unwrap();
                        b.engine.clear_handler(passing).unwrap();
                    }
                    _ => {}
                }
                b.cq.set_handler(Some(id)).unwrap();
            }
        });
        for round in 1..=ROUNDS {
            notify(&a, &b, Arm::Next);
            let end = Instant::now() + TEST_TIMEOUT;
            while received.load(Ordering::SeqCst) < round {
                assert!(Instant::now() < end, "notification {round} was lost");
                std::thread::yield_now();
            }
            assert_eq!(received.load(Ordering::SeqCst), round, "doubled");
            b.complete(1);
            drain(&a);
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Ends its threads: no handler is called any more.
    drop(b);
    assert_eq!(received.load(Ordering::SeqCst), ROUNDS);
}

#[test]
fn detached_queue_keeps_its_notification() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (options, notified) = forwarding_handler();
    let id = b.engine.set_handler(&options).unwrap();
    b.cq.set_handler(Some(id)).unwrap();
    connect_sides(&a, &b);
    // Detached by the program, and because its handler is cleared.
    for clear in [false, true] {
        if clear {
            b.engine.clear_handler(id).unwrap();
        } else {
            b.cq.detach_handler();
        }
        notify(&a, &b, Arm::Next);
        b.complete(1);
        a.complete(1);
        // The queue is not armed now; a notification of the first message would have been sent before the second one is received.
        crate::common::exchange(&a, &b);
        assert!(notified.try_recv().is_err());
        if clear {
            assert_eq!(b.engine.set_handler(&options).unwrap(), id);
        }
        b.cq.set_handler(Some(id)).unwrap();
        assert_eq!(
            notified.recv_timeout(TEST_TIMEOUT).unwrap().cq,
            b.cq.number()
        );
    }
    drop(b);
    assert!(notified.try_recv().is_err(), "delivered twice");
}

#[test]
fn shared_handler_is_called_once_per_queue() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (options, notified) = forwarding_handler();
    let id = b.engine.set_handler(&options).unwrap();
    let mut sides = Vec::new();
    for _ in 0..20 {
        let cq = b.engine.create_cq_with(16, id).unwrap();
        let qp = crate::common::make_qp(&b.engine, &cq, b.pd);
        sides.push((cq, qp));
    }
    let listener = b.engine.listen(crate::common::loopback(), 64).unwrap();
    let mut peers = Vec::new();
    for (cq, qp) in &sides {
        let peer = crate::common::make_qp(&a.engine, &a.cq, a.pd);
        crate::common::connect_pair(&peer, &listener, qp);
        let scatter = [b.sge(0, 64)];
        let receive = verbena_nic::ReceiveWr {
            id: 1,
            scatter: &scatter,
        };
        qp.post_receive(&receive).unwrap();
        cq.arm(Arm::Next);
        peers.push(peer);
    }
    let sges = [a.sge(0, 8)];
    for peer in &peers {
        let wr = SendWr {
            id: 1,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Gather(&sges),
        };
        peer.post_send(&wr).unwrap();
    }
    let mut times: HashMap<u32, u32> = HashMap::new();
    for _ in 0..20 {
        *times
            .entry(notified.recv_timeout(TEST_TIMEOUT).unwrap().cq)
            .or_default() += 1;
    }
    assert!(
        sides.iter().all(|(cq, _)| times[&cq.number()] == 1),
        "{times:?}"
    );
}

#[test]
fn panicking_handler_is_called_again() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let processor = sys::processors().unwrap()[0];
    for place in [Affinity::Inline, Affinity::Processors(vec![processor])] {
        let received = Arc::new(AtomicU32::new(0));
        let ours = received.clone();
        let options = HandlerOptions {
            affinity: place,
            ..callback(move |_| {
                ours.fetch_add(1, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new("the program's own affair"));
            })
        };
        let id = b.engine.set_handler(&options).unwrap();
        b.cq.set_handler(Some(id)).unwrap();
        if b.qp.state() == QpState::Reset {
            connect_sides(&a, &b);
        }
        for round in 1..=5 {
            notify(&a, &b, Arm::Next);
            wait("it is told", || received.load(Ordering::SeqCst) == round);
            b.complete(1);
            a.complete(1);
        }
        b.engine.clear_handler(id).unwrap();
    }
}

/// N6: a handler of the latency class does not wait for bulk handlers on its processor, however many there are.
#[test]
fn latency_class_runs_on_a_saturated_processor() {
    let (a, b) = (Side::new(&[]), Side::new(&[("handlers", "2")]));
    let (rounds, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (counts, stops) = (rounds.clone(), stop.clone());
    // Bulk load without end: its handler never idles.
    let bulk = callback(move |_| {
        while !stops.load(Ordering::Relaxed) {
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (latency, notified) = bulk_then_latency(&b, bulk);
    connect_sides(&a, &b);
    notify(&a, &b, Arm::Next);
    wait("bulk saturates", || rounds.load(Ordering::Relaxed) > 0);
    b.complete(1);
    b.cq.set_handler(Some(latency)).unwrap();
    for _ in 0..50 {
        notify(&a, &b, Arm::Next);
        notified.recv_timeout(TEST_TIMEOUT).unwrap();
        b.complete(1);
        drain(&a);
    }
    assert!(!stop.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
}

/// N6, E10: with vectors of their own and with a shared one, latency events are served while a bulk callback has not returned.
#[test]
fn latency_class_overtakes_a_bulk_callback() {
    for granted in ["1", "256"] {
        let settings = [("vectors", granted), ("handlers", "2")];
        let (a, b) = (Side::new(&[]), Side::new(&settings));
        let ((began, begins), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let gate = Mutex::new((began, released));
        let bulk = callback(move |_| {
            let (began, released) = &*gate.lock().unwrap();
            began.send(()).unwrap();
            released.recv().unwrap();
        });
        let (latency, notified) = bulk_then_latency(&b, bulk);
        connect_sides(&a, &b);
        notify(&a, &b, Arm::Next);
        begins.recv_timeout(TEST_TIMEOUT).unwrap();
        b.complete(1);
        drain(&a);
        b.cq.set_handler(Some(latency)).unwrap();
        for _ in 0..20 {
            notify(&a, &b, Arm::Next);
            notified.recv_timeout(TEST_TIMEOUT).unwrap();
            b.complete(1);
            drain(&a);
        }
        assert!(begins.try_recv().is_err(), "one bulk callback has begun");
        release.send(()).unwrap();
    }
}

#[test]
fn moderation_delays_notifications_within_its_limit() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (options, notified) = forwarding_handler();
    let hold = Hold::new(64, Duration::from_millis(50)).unwrap();
    let options = HandlerOptions {
        moderation: Some(Moderation::Fixed(hold)),
        ..options
    };
    let id = b.engine.set_handler(&options).unwrap();
    b.cq.set_handler(Some(id)).unwrap();
    connect_sides(&a, &b);
    let began = Instant::now();
    notify(&a, &b, Arm::Next);
    notified.recv_timeout(TEST_TIMEOUT).unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(45), "held: {took:?}");
    b.complete(1);
    drain(&a);
    b.engine.moderate(id, Moderation::Off).unwrap();
    notify(&a, &b, Arm::Next);
    notified.recv_timeout(TEST_TIMEOUT).unwrap();
}

#[test]
fn observer_sees_injected_causes() {
    let side = Side::new(&[]);
    let (tell, notified) = mpsc::channel();
    let tell = Mutex::new(tell);
    let observation = side.engine.observe(Arc::new(move |cause| {
        tell.lock().unwrap().send(cause).unwrap();
    }));
    let causes = [
        Cause::Link { port: 1, up: false },
        Cause::MemoryError {
            internal: true,
            bank: 3,
        },
        Cause::GeneralPurpose { pin: 5 },
        Cause::Management { parameter: 77 },
        Cause::Channel {
            channel: 9,
            what: ChannelEvent::Returned,
            count: 12,
        },
    ];
    for cause in causes {
        side.engine.inject(cause, Origin::UNSPECIFIED).unwrap();
        assert_eq!(notified.recv_timeout(TEST_TIMEOUT).unwrap(), cause);
    }
    drop(observation);
    side.engine.inject(causes[0], Origin::UNSPECIFIED).unwrap();
    assert!(notified.recv().is_err(), "the observer is gone");
    let (fired, accesses) = side.engine.interrupts();
    assert!(fired >= 6 && accesses.reads == 0, "{accesses:?}");
}

/// N8: shutdown completes or flushes all work.
#[test]
fn shutdown_finishes_or_flushes_and_notifies() {
    for finishes in [true, false] {
        let (a, b) = (Side::new(&[]), Side::new(&[]));
        let (options, notified) = forwarding_handler();
        let processor = sys::processors().unwrap()[0];
        let options = HandlerOptions {
            affinity: Affinity::Processors(vec![processor]),
            ..options
        };
        let id = a.engine.set_handler(&options).unwrap();
        a.cq.set_handler(Some(id)).unwrap();
        connect_sides(&a, &b);
        a.cq.arm(Arm::Next);
        a.receive(7, &[a.sge(0, 8)]);
        a.post(1, SEND, &[a.sge(0, 8)]);
        if finishes {
            b.receive(2, &[b.sge(0, 8)]);
        }
        let patience = Duration::from_millis(300);
        let done = a.engine.shut_down(patience).unwrap();
        assert_eq!(
            (done.finished, done.flushed),
            if finishes { (1, 0) } else { (0, 1) }
        );
        notified.recv_timeout(TEST_TIMEOUT).unwrap();
        let flushed = (7, Status::WrFlushErr);
        let first = if finishes {
            (1, Status::Success)
        } else {
            (1, Status::WrFlushErr)
        };
        let mut statuses = a.statuses(2);
        statuses.sort_by_key(|(id, _)| *id);
        assert_eq!(statuses, [first, flushed]);
        // Nothing new is accepted.
        assert!(matches!(a.engine.create_cq(4), Err(Error::Closed)));
        assert!(matches!(a.engine.shut_down(patience), Err(Error::Closed)));
        let wr = verbena_nic::ReceiveWr {
            id: 1,
            scatter: &[],
        };
        assert!(a.qp.post_receive(&wr).is_err());
        wait("the peer sees the end", || {
            b.qp.view().peer_disconnected || b.qp.state() == QpState::Err
        });
    }
}
