//! The notification pipeline under stress: callbacks that panic, that never return, and adapters that are shut down.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use verbena_engine::notify::handler::Affinity;
use verbena_engine::{Engine, HandlerOptions, sys};
use verbena_events::eqe::{Cause, ChannelEvent};
use verbena_events::interrupts::{At, Origin};
use verbena_events::moderation::{Hold, Moderation};
use verbena_nic::{Arm, QpState, Wc};

use crate::common::{SEND, Side, TEST_TIMEOUT, config, connect_sides};

/// Service is round robin: an event queue that never empties does not block others (docs/events.md).
#[test]
fn busy_event_queue_does_not_starve_others() {
    let engine = Arc::new(Engine::new(config(&[])).unwrap());
    let (again, seen, others) = (
        Arc::downgrade(&engine),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (count, notified) = (seen.clone(), others.clone());
    let pin = Cause::GeneralPurpose { pin: 1 };
    let other = Cause::Channel {
        channel: 1,
        what: ChannelEvent::Returned,
        count: 1,
    };
    let _observed = engine.observe(Arc::new(move |cause| {
        let Some(engine) = again.upgrade() else {
            return;
        };
        if cause == other {
            notified.store(true, Ordering::Relaxed);
            return;
        }
        let before = count.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            let elsewhere = Origin::new(At::Processor(2));
            engine.inject(other, elsewhere).unwrap();
        }
        if before < 100_000 && !notified.load(Ordering::Relaxed) {
            engine.inject(pin, Origin::UNSPECIFIED).unwrap();
        }
    }));
    engine.inject(pin, Origin::UNSPECIFIED).unwrap();
    assert!(others.load(Ordering::Relaxed));
    let before_it = seen.load(Ordering::Relaxed);
    assert!(
        before_it < 1000,
        "{before_it} events of one queue came first"
    );
}

/// Panics when it is dropped.
struct PanicOnDrop(AtomicBool);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::Relaxed), "let go of on purpose");
    }
}

#[test]
fn handler_state_may_panic_when_dropped() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    connect_sides(&a, &b);
    let (came, comes) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let held = Mutex::new((came, goes, PanicOnDrop(AtomicBool::new(true))));
    let waits = move |_| {
        let held = held.lock().unwrap();
        held.0.send(()).unwrap();
        held.1.recv().unwrap();
    };
    let id = b.engine.set_handler(&HandlerOptions::new(waits)).unwrap();
    b.cq.set_handler(Some(id)).unwrap();
    let (tell, notified) = mpsc::channel();
    let tell = Mutex::new(tell);
    let listens = move || tell.lock().unwrap().send(()).unwrap();
    b.cq.set_notify(Some(Arc::new(listens)));
    b.receive(1, &[b.sge(0, 64)]);
    b.cq.arm(Arm::Next);
    a.post(2, SEND, &[a.sge(0, 8)]);
    comes.recv_timeout(TEST_TIMEOUT).unwrap();
    // Cleared while it runs, so that the pipeline drops the last reference.
    b.engine.clear_handler(id).unwrap();
    go.send(()).unwrap();
    notified
        .recv_timeout(TEST_TIMEOUT)
        .expect("who listens is told all the same");
    // The same column serves its next handler.
    let (tell, notified) = mpsc::channel();
    let tell = Mutex::new(tell);
    let next = HandlerOptions::new(move |_| tell.lock().unwrap().send(()).unwrap());
    assert_eq!(b.engine.set_handler(&next).unwrap(), id);
    b.cq.set_handler(Some(id)).unwrap();
    b.receive(1, &[b.sge(0, 64)]);
    b.cq.arm(Arm::Next);
    a.post(2, SEND, &[a.sge(0, 8)]);
    notified
        .recv_timeout(TEST_TIMEOUT)
        .expect("the event queue serves on");
}

/// N8: a moderated notification is delivered after a shutdown, too, when no timer runs any more.
#[test]
fn moderated_notification_is_delivered_after_shutdown() {
    let side = Side::new(&[]);
    let (tell, notified) = mpsc::channel();
    let tell = Mutex::new(tell);
    let hold = Hold::new(64, Duration::from_millis(20)).unwrap();
    let id = side
        .engine
        .set_handler(&HandlerOptions {
            moderation: Some(Moderation::Fixed(hold)),
            ..HandlerOptions::new(move |_| tell.lock().unwrap().send(()).unwrap())
        })
        .unwrap();
    side.cq.set_handler(Some(id)).unwrap();
    let control = side.engine.create_control(Some(&side.cq), 8).unwrap();
    // Once, so that the timer is registered with a shard.
    side.cq.arm(Arm::Next);
    control.create_cq(1, 16, None).unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let wait = move |_| {
        let _ = gate.lock().unwrap().recv();
    };
    control.create_cq(2, 16, Some(Box::new(wait))).unwrap();
    control.create_cq(3, 16, None).unwrap();
    side.engine.shut_down(Duration::ZERO).unwrap();
    while notified.try_recv().is_ok() {}
    let mut some = [Wc::default(); 4];
    while side.cq.poll(&mut some) > 0 {}
    side.cq.arm(Arm::Next);
    drop(open);
    notified
        .recv_timeout(TEST_TIMEOUT)
        .expect("no timer for the signal that is held");
}

/// Events queue up behind a callback that does not return: there is room for some millions before the adapter fails (E2).
#[test]
fn millions_of_events_queue_behind_a_callback() {
    const MANY: u32 = 3_000_000;
    let engine = Arc::new(Engine::new(config(&[])).unwrap());
    let (again, seen) = (Arc::downgrade(&engine), Arc::new(AtomicU32::new(0)));
    let (count, pin) = (seen.clone(), Cause::GeneralPurpose { pin: 1 });
    let _observed = engine.observe(Arc::new(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(engine) = again.upgrade()
        {
            for _ in 0..MANY {
                engine.inject(pin, Origin::UNSPECIFIED).unwrap();
            }
        }
    }));
    engine.inject(pin, Origin::UNSPECIFIED).unwrap();
    assert_eq!(engine.down(), None);
    assert_eq!(seen.load(Ordering::Relaxed), MANY + 1);
}

#[test]
fn invalid_hold_is_refused() {
    let engine = Engine::new(config(&[("handlers", "1")])).unwrap();
    let hold = Hold {
        count: 5,
        delay: Duration::MAX,
    };
    let moderation = Moderation::Fixed(hold);
    let refused = engine.set_handler(&HandlerOptions {
        moderation: Some(moderation),
        ..HandlerOptions::default()
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("signals can wait up to"), "{refused}");
    let id = engine.set_handler(&HandlerOptions::default()).unwrap();
    assert!(engine.moderate(id, moderation).is_err());
}

/// A callback for the result of a connect, or for a new request, may panic: it runs on a thread that serves other connections.
#[test]
fn panicking_connection_callbacks_do_not_stop_service() {
    crate::common::within(TEST_TIMEOUT * 3, panicking_at_connections);
}

fn panicking_at_connections() {
    let settings = [("shards", "1")];
    let (a, b) = (Side::new(&settings), Side::new(&settings));
    let closed = {
        let listener = b.engine.listen(crate::common::loopback(), 1).unwrap();
        listener.local_addr().unwrap()
    };
    let panics = |_| panic!("on purpose");
    // Called at once or later, depending on when the system reports it.
    let _ = a.qp.connect(closed, b"", panics);
    let listener = b.engine.listen(crate::common::loopback(), 4).unwrap();
    listener.set_notify(Some(Arc::new(|| panic!("on purpose"))));
    let qp = crate::common::make_qp(&a.engine, &a.cq, a.pd);
    let (tell, notified) = mpsc::channel();
    qp.connect(listener.local_addr().unwrap(), b"", move |r| {
        tell.send(r).unwrap();
    })
    .unwrap();
    let incoming = listener.next().unwrap().unwrap();
    incoming
        .accept(&b.qp, b"", |_| panic!("on purpose"))
        .unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    let (a, b) = (Side { qp, ..a }, b);
    b.receive(1, &[b.sge(0, 64)]);
    a.post(2, SEND, &[a.sge(0, 8)]);
    a.complete(1);
    b.complete(1);
    // The listener's shard still accepts connections.
    let (c, d) = (Side::new(&settings), &b);
    let other = crate::common::make_qp(&d.engine, &d.cq, d.pd);
    let (tell, notified) = mpsc::channel();
    c.qp.connect(listener.local_addr().unwrap(), b"", move |r| {
        tell.send(r).unwrap();
    })
    .unwrap();
    let incoming = listener.next().unwrap().unwrap();
    incoming.accept(&other, b"", drop).unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
}

#[test]
fn blocked_handler_does_not_prevent_shutdown() {
    let side = Side::new(&[("linger", "200ms")]);
    let processor = sys::processors().unwrap()[0];
    let (begins, began) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let both = Mutex::new((begins, released));
    let options = HandlerOptions {
        affinity: Affinity::Processors(vec![processor]),
        ..HandlerOptions::new(move |_| {
            let (begins, released) = &*both.lock().unwrap();
            begins.send(()).unwrap();
            // Ends with an error when `release` is dropped.
            let _ = released.recv();
        })
    };
    let id = side.engine.set_handler(&options).unwrap();
    side.cq.set_handler(Some(id)).unwrap();
    side.qp.modify(QpState::Init).unwrap();
    side.receive(1, &[]);
    side.cq.arm(Arm::Next);
    side.qp.modify(QpState::Err).unwrap();
    began.recv_timeout(TEST_TIMEOUT).unwrap();
    // Returns although the handler never does.
    side.engine.shut_down(Duration::ZERO).unwrap();
    drop(side);
    drop(release);
}
