//! An engine that fails because one of its threads panics: every wait ends, posted work is flushed, and later calls report the reason.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use verbena_engine::notify::handler::Affinity;
use verbena_engine::{Engine, EngineFailure, EngineThread, Error, HandlerOptions, sys};
use verbena_nic::{Arm, Event, QpState, Status, UlpQp};

use crate::common::datagrams::{self, LOCALHOST};
use crate::common::{
    SEND, Side, TEST_TIMEOUT, connect_sides, loopback, make_qp, read_to_end, ulp, wait, within,
};

const KINDS: [EngineThread; 3] = [
    EngineThread::Shard,
    EngineThread::Control,
    EngineThread::Handler,
];

/// A side whose engine has a thread of every kind.
fn side() -> Side {
    let side = Side::new(&[("shards", "2")]);
    let processor = sys::processors().unwrap()[0];
    let options = HandlerOptions {
        affinity: Affinity::Processors(vec![processor]),
        ..HandlerOptions::new(|_| ())
    };
    side.engine.set_handler(&options).unwrap();
    side
}

fn is_failure(error: &Error, thread: EngineThread) -> bool {
    let prefix = match thread {
        EngineThread::Shard => "verbena-",
        EngineThread::Control => "verbena-control",
        EngineThread::Handler => "verbena-norm",
    };
    let Error::Failed(why) = error else {
        return false;
    };
    let EngineFailure::Panic { thread, message } = &**why else {
        return false;
    };
    thread.starts_with(prefix) && message.contains("provoked by a test")
}

/// Waits on another thread for a descriptor to become readable.
fn readable(fd: impl AsFd + Send + 'static) -> Receiver<()> {
    let (tell, notified) = mpsc::channel();
    std::thread::spawn(move || {
        let poller = sys::Poller::new().unwrap();
        poller.add(&fd, 0, sys::Interest::READ).unwrap();
        poller.wait(&mut Vec::new(), None).unwrap();
        tell.send(()).unwrap();
    });
    notified
}

#[test]
fn panic_flushes_work_and_wakes_waiters() {
    for kind in KINDS {
        within(3 * TEST_TIMEOUT, move || panics(kind));
    }
}

fn panics(kind: EngineThread) {
    let (a, b) = (side(), Side::new(&[]));
    connect_sides(&a, &b);
    a.receive(1, &[a.sge(0, 8)]);
    // Waits for a receive at the peer that is never posted.
    a.post(2, SEND, &[a.sge(0, 8)]);
    let idle = make_qp(&a.engine, &a.cq, a.pd);

    let (notify, completed) = mpsc::channel();
    a.cq.set_notify(Some(Arc::new(move || notify.send(()).unwrap_or(()))));
    a.cq.arm(Arm::Next);
    let inbox = readable(a.engine.events().as_fd().try_clone_to_owned().unwrap());
    let listening = Arc::new(a.engine.listen(loopback(), 4).unwrap());
    let accepts: Vec<_> = (0..2)
        .map(|_| {
            let (listening, (tell, result)) = (listening.clone(), mpsc::channel());
            std::thread::spawn(move || tell.send(listening.next().map(|_| ())).unwrap());
            result
        })
        .collect();
    // Accepts the connection and sends nothing.
    let silent = TcpListener::bind(loopback()).unwrap();
    let (tell, connected) = mpsc::channel();
    let to = silent.local_addr().unwrap();
    idle.connect(to, b"", move |r| tell.send(r).unwrap())
        .unwrap();

    a.engine.provoke_panic(kind).unwrap();

    let result = |what: &Receiver<_>| what.recv_timeout(TEST_TIMEOUT).expect("the wait goes on");
    result(&inbox);
    result(&completed);
    for accept in &accepts {
        let error = accept.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
        assert!(is_failure(&error, kind), "{error}");
    }
    let refused = connected.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
    assert!(is_failure(&refused, kind), "{refused}");

    let events: Vec<_> = std::iter::from_fn(|| a.engine.events().try_take()).collect();
    let fatal = events.iter().filter(|e| **e == Event::DeviceFatal).count();
    assert_eq!(fatal, 1, "{events:?}");
    assert_eq!(a.qp.state(), QpState::Err);
    let mut flushed = a.statuses(2);
    flushed.sort_by_key(|(id, _)| *id);
    let flush = Status::WrFlushErr;
    assert_eq!(flushed, [(1, flush), (2, flush)]);

    let refused = a.engine.create_cq(4).unwrap_err();
    assert!(is_failure(&refused, kind), "{refused}");
    let refused = a.engine.listen(loopback(), 1).unwrap_err();
    assert!(is_failure(&refused, kind), "{refused}");
    assert!(a.qp.post_receive(&RECEIVE).is_err());
    assert!(a.engine.failure().is_some());
    wait("the peer sees the end", || {
        b.qp.view().peer_disconnected || b.qp.state() == QpState::Err
    });
}

const RECEIVE: verbena_nic::ReceiveWr<'static> = verbena_nic::ReceiveWr {
    id: 9,
    scatter: &[],
};

/// Other engines of the process, and other functions of the adapter, have threads of their own.
#[test]
fn panic_does_not_affect_other_engines() {
    let (a, b, c) = (side(), Side::new(&[]), Side::new(&[]));
    connect_sides(&b, &c);
    a.engine.provoke_panic(EngineThread::Shard).unwrap();
    wait("the failure", || a.engine.failure().is_some());
    c.receive(1, &[c.sge(0, 8)]);
    b.post(2, SEND, &[b.sge(0, 8)]);
    assert_eq!(b.statuses(1), [(2, Status::Success)]);
    assert_eq!(c.statuses(1), [(1, Status::Success)]);
}

/// Requests in control queue pairs complete, whichever thread panicked.
#[test]
fn panic_completes_queued_registrations() {
    for kind in KINDS {
        let a = side();
        let control = a.engine.create_control(None, 8).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        let (busy, begun) = mpsc::channel();
        let gate = std::sync::Mutex::new(gate);
        let hold = move |_| {
            busy.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        };
        control.create_cq(1, 4, Some(Box::new(hold))).unwrap();
        begun.recv_timeout(TEST_TIMEOUT).unwrap();
        let (tell, notified) = mpsc::channel();
        let answer = move |outcome| drop(tell.send(outcome));
        control.create_cq(2, 4, Some(Box::new(answer))).unwrap();
        a.engine.provoke_panic(kind).unwrap();
        if kind != EngineThread::Control {
            wait("the failure", || a.engine.failure().is_some());
        }
        drop(open);
        let outcome: Result<(), Error> = notified.recv_timeout(TEST_TIMEOUT).unwrap();
        // A panic of another thread may come after the request was done.
        assert!(
            outcome.is_err() || kind != EngineThread::Control,
            "{kind:?}"
        );
        wait("the failure", || a.engine.failure().is_some());
        assert!(control.create_cq(3, 4, None).is_err());
    }
}

/// A way to end an engine.
type EndEngine = fn(&Engine);

/// Posted work of every kind of queue pair is flushed, and events report the end of the shared receive queues and then of the engine, however it
/// ends (N8, E2, E7).
#[test]
fn every_shutdown_flushes_every_queue_pair_kind() {
    let ends: [(&str, EndEngine); 3] = [
        ("N8", |engine| {
            let ended = engine.shut_down(Duration::from_millis(50)).unwrap();
            assert_eq!((ended.finished, ended.flushed), (3, 0));
        }),
        ("E2", Engine::provoke_shutdown),
        ("panic", |engine| {
            engine.provoke_panic(EngineThread::Shard).unwrap();
        }),
    ];
    for (name, end) in ends {
        let (a, b) = (Side::new(&[("device", LOCALHOST)]), Side::new(&[]));
        connect_sides(&a, &b);
        let srqs = [1, 2].map(|_| a.engine.create_srq(a.pd, 16, 1).unwrap());
        let ud = datagrams::make(&a.engine, &a.cq, a.pd);
        datagrams::ready(&ud);
        let peer = TcpListener::bind(loopback()).unwrap();
        let to = peer.local_addr().unwrap();
        let raw = ulp::connect(&a.engine, &a.cq, a.pd, to);
        let (stream, _) = peer.accept().unwrap();

        let scatter = [a.sge(0, 4096)];
        let receive = |id| verbena_nic::ReceiveWr {
            id,
            scatter: &scatter,
        };
        a.qp.post_receive(&receive(1)).unwrap();
        ud.post_receive(&receive(2)).unwrap();
        let post = |id| raw.post_receives(|qp, _| qp.post_receive(&receive(id)));
        post(3).unwrap();
        end(&a.engine);

        let mut flushed = a.statuses(3);
        flushed.sort_by_key(|(id, _)| *id);
        let expected = [1, 2, 3].map(|id| (id, Status::WrFlushErr));
        assert_eq!(flushed, expected, "{name}");
        let states = [a.qp.state(), ud.state(), raw.qp().state()];
        assert_eq!(states, [QpState::Err; 3], "{name}");
        let mut raised = Vec::new();
        wait("the event", || {
            raised.extend(std::iter::from_fn(|| a.engine.events().try_take()));
            raised.contains(&Event::DeviceFatal)
        });
        raised.retain(|event| matches!(event, Event::SrqError { .. } | Event::DeviceFatal));
        let [first, second] = srqs
            .each_ref()
            .map(|srq| Event::SrqError { srq: srq.number() });
        let expected = [first, second, Event::DeviceFatal];
        assert!(
            raised == expected || raised == [second, first, Event::DeviceFatal],
            "{name}: {raised:?}"
        );
        assert!(a.engine.create_cq(4).is_err(), "{name}");
        if name != "E2" {
            // Otherwise flushed at once: only events cannot be delivered.
            assert!(ud.post_receive(&receive(4)).is_err(), "{name}");
            assert_eq!(post(4), Err(QpState::Err), "{name}");
        }
        read_to_end(&stream);
    }
}
