//! Completion handlers as programs of the low layer use them: registered, moved, owning their queue, cleared, shut down.
//! A notification that has no handler is held for the next one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use verbena::events::{
    Affinity, Arming, Cause, Class, Completion, Event, Handler, HandlerOptions, Origin, Reason,
};
use verbena::low::{Arm, Cq, Data, Qp, QpOptions, RecvWr};
use verbena::unstable::processor;
use verbena::{Device, Error, Fault, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

/// Two connected queue pairs of one device; the second one's receives complete in a separate queue, which is an initial one if the device
/// has any.
struct ConnectedQps {
    a: Qp,
    b: Qp,
    sent: Cq,
    received: Cq,
    device: Device,
}

fn connected_qps(settings: &[(&str, &str)]) -> ConnectedQps {
    let device = device(settings);
    let pd = device.pd().unwrap();
    let sent = device.cq(64).unwrap();
    let initial = device.initial_cq(0).unwrap();
    let received = initial.unwrap_or_else(|| device.cq(64).unwrap());
    let a = Qp::new(&pd, &sent, &sent, QpOptions::default()).unwrap();
    let b = Qp::new(&pd, &sent, &received, QpOptions::default()).unwrap();
    connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
    ConnectedQps {
        a,
        b,
        sent,
        received,
        device,
    }
}

impl ConnectedQps {
    /// Sends a message to the receiving queue, which is armed.
    fn send_message(&self) {
        self.received.arm(Arm::Next);
        let receive = RecvWr {
            id: 1,
            scatter: &[],
        };
        self.b.post_recv(&[receive]).unwrap();
        self.a.post_send(&[wr(2, SEND, Data::Inline(b""))]).unwrap();
        assert_eq!(complete(&self.sent, 1)[0].status, Status::Success);
    }
}

fn reporting_handler(device: &Device) -> (Handler, mpsc::Receiver<(Completion, Option<u16>)>) {
    let (tell, notified) = mpsc::channel();
    let options = HandlerOptions::new(move |completion| {
        let _ = tell.send((completion, processor()));
    });
    (device.set_handler(&options).unwrap(), notified)
}

/// A queue that exists from the initialization on is associated with a handler by the handler's number, as a created one is.
#[test]
fn initial_completion_queue_calls_its_handler() {
    let two = connected_qps(&[("initial_cqs", "1")]);
    let initial = two.device.initial_cq(0).unwrap().unwrap();
    assert_eq!(initial.number(), two.received.number());
    let (handler, notified) = reporting_handler(&two.device);
    initial.set_handler(Some(&handler)).unwrap();
    two.send_message();
    let (completion, _) = notified.recv_timeout(Duration::from_secs(10)).unwrap();
    let expected = (two.received.number(), handler.id());
    assert_eq!((completion.cq, completion.handler.0), expected);
}

#[test]
fn queue_changes_handler_without_losing_events() {
    let two = connected_qps(&[("handlers", "2")]);
    let ((first, by_first), (second, by_second)) = (
        reporting_handler(&two.device),
        reporting_handler(&two.device),
    );
    let patience = Duration::from_secs(10);
    two.received.set_handler(Some(&first)).unwrap();
    two.send_message();
    let (completion, _) = by_first.recv_timeout(patience).unwrap();
    let expected = Completion {
        cq: two.received.number(),
        reason: Reason::Next,
        handler: completion.handler,
    };
    assert_eq!(completion, expected);
    assert_eq!(completion.handler.0, first.id());

    let place = *two.device.processors().unwrap().last().unwrap();
    second
        .set_affinity(&Affinity::Processors(vec![place]))
        .unwrap();
    second.set_class(Class::Bulk).unwrap();
    two.received.set_handler(Some(&second)).unwrap();
    two.send_message();
    assert_eq!(by_second.recv_timeout(patience).unwrap().1, Some(place));

    // Held while there is no handler, after detaching or because the handler was cleared.
    two.received.detach_handler();
    two.send_message();
    first.clear();
    two.received.set_handler(Some(&second)).unwrap();
    by_second.recv_timeout(patience).unwrap();
    drop(second);
    assert!(by_second.recv().is_err(), "its code is gone with it");
    two.send_message();
    let (third, by_third) = reporting_handler(&two.device);
    two.received.set_handler(Some(&third)).unwrap();
    by_third.recv_timeout(patience).unwrap();
    assert!(by_first.try_recv().is_err() && by_third.try_recv().is_err());
    assert_eq!(complete(&two.received, 4).len(), 4);
}

#[test]
fn a_handler_may_own_its_queue() {
    let device = device(&[]);
    let cq = Arc::new(device.cq(64).unwrap());
    let owned = cq.clone();
    let options = HandlerOptions::new(move |_| owned.arm(Arm::Next));
    let handler = device.set_handler(&options).unwrap();
    drop(options);
    cq.set_handler(Some(&handler)).unwrap();
    assert_eq!(Arc::strong_count(&cq), 2);
    drop(handler);
    assert_eq!(Arc::strong_count(&cq), 1, "no circle");
}

#[test]
fn invalid_calls_are_refused() {
    let (ours, theirs) = (device(&[("handlers", "1")]), device(&[]));
    assert_eq!(ours.handler_limit(), 1);
    let (handler, _told) = reporting_handler(&ours);
    let more = ours.set_handler(&HandlerOptions::default()).unwrap_err();
    assert_eq!(more.fault(), Fault::Limit, "{more}");
    let nowhere = handler
        .set_affinity(&Affinity::Processors(vec![60_000]))
        .unwrap_err();
    assert_eq!(nowhere.fault(), Fault::Caller, "{nowhere}");
    let foreign = theirs.cq_with(64, &handler);
    assert!(matches!(foreign, Err(Error::Foreign)), "{foreign:?}");
    let cq = theirs.cq(64).unwrap();
    let foreign = cq.set_handler(Some(&handler));
    assert!(matches!(foreign, Err(Error::Foreign)), "{foreign:?}");
    let own = Cause::Rdma(Event::Disconnected { qp: 2 });
    let forged = ours.inject(own, Origin::UNSPECIFIED).unwrap_err();
    assert_eq!(forged.fault(), Fault::Caller, "{forged}");
    drop(handler);
    let (again, _told) = reporting_handler(&ours);
    assert_eq!(again.id(), 0);
}

#[test]
fn an_observer_sees_completions_too() {
    let two = connected_qps(&[]);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let cq = two.received.number();
    let observation = two.device.observe(move |cause| {
        if matches!(cause, Cause::Rdma(Event::Completion { cq: of, .. }) if of == cq) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    two.send_message();
    wait_until("seen", || seen.load(Ordering::Relaxed) == 1);
    drop(observation);
    two.send_message();
    assert!(two.received.take_notification().unwrap() && two.received.take_notification().unwrap());
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn shut_down_flushes_work_and_notifies_handler() {
    let two = connected_qps(&[("linger", "100ms")]);
    let (handler, notified) = reporting_handler(&two.device);
    two.received.set_handler(Some(&handler)).unwrap();
    two.received.arm(Arm::Next);
    let receive = RecvWr {
        id: 5,
        scatter: &[],
    };
    two.b.post_recv(&[receive]).unwrap();
    let ended = two.device.shut_down(Duration::from_secs(5)).unwrap();
    assert_eq!((ended.finished, ended.flushed), (2, 0));
    assert!(notified.recv_timeout(Duration::from_secs(5)).is_ok());
    let mut some = [verbena::low::Wc::default(); 4];
    assert_eq!(two.received.poll(&mut some), 1);
    assert_eq!(some[0].status, Status::WrFlushErr);
    assert!(two.device.shut_down(Duration::ZERO).is_err());
    assert!(two.a.post_send(&[wr(1, SEND, Data::Inline(b""))]).is_err());
}

const ARRANGEMENTS: [&str; 22] = [
    "one_queue_line",
    "processor_queues_line",
    "duty_queues_line",
    "all_queues_line",
    "one_queue_one_vector",
    "one_queue_processor_vectors",
    "one_queue_duty_vectors",
    "one_queue_all_vectors",
    "processor_queues_one_vector",
    "processor_queues_processor_vectors",
    "processor_queues_duty_vectors",
    "processor_queues_all_vectors",
    "several_queues_several_vectors",
    "all_queues_grouped_vectors",
    "duty_queues_one_vector",
    "duty_queues_processor_vectors",
    "duty_queues_duty_vectors",
    "duty_queues_all_vectors",
    "all_queues_one_vector",
    "all_queues_processor_vectors",
    "all_queues_duty_vectors",
    "all_queues_all_vectors",
];

/// E1, E8, E9, N5: completions reach their handlers, one inline and one on its processor, and asynchronous events the program.
fn completions_arrive(settings: &[(&str, &str)]) {
    let two = connected_qps(&[&[("handlers", "2")], settings].concat());
    let patience = Duration::from_secs(10);
    let ((inline, by_inline), (placed, by_placed)) = (
        reporting_handler(&two.device),
        reporting_handler(&two.device),
    );
    let place = *two.device.processors().unwrap().last().unwrap();
    placed
        .set_affinity(&Affinity::Processors(vec![place]))
        .unwrap();
    placed.set_class(Class::Latency).unwrap();
    let (tell, told) = mpsc::channel();
    let _observation = two.device.observe(move |cause| {
        let _ = tell.send(cause);
    });
    for _ in 0..3 {
        two.received.set_handler(Some(&inline)).unwrap();
        two.send_message();
        let (completion, _) = by_inline.recv_timeout(patience).expect("called");
        assert_eq!(completion.handler.0, inline.id(), "{settings:?}");
        two.received.set_handler(Some(&placed)).unwrap();
        two.send_message();
        let (completion, processor) = by_placed.recv_timeout(patience).expect("called");
        let called = (completion.cq, completion.handler.0, processor);
        let expected = (two.received.number(), placed.id(), Some(place));
        assert_eq!(called, expected, "{settings:?}");
    }
    let link = Cause::Link { port: 0, up: true };
    two.device.inject(link, Origin::UNSPECIFIED).unwrap();
    while told.recv_timeout(patience).expect("a global event") != link {}
    assert!(by_inline.try_recv().is_err() && by_placed.try_recv().is_err());
    assert_eq!(complete(&two.received, 6).len(), 6);
}

#[test]
fn completions_arrive_in_every_arrangement() {
    for arrangement in ARRANGEMENTS {
        for routing in ["processor", "queue"] {
            let settings = [
                ("interrupt_arrangement", arrangement),
                ("interrupt_routing", routing),
            ];
            completions_arrive(&settings);
        }
    }
}

#[test]
fn completions_arrive_in_every_entry_form() {
    for entry in ["4", "16"] {
        for memory in ["contiguous", "paged"] {
            // One entry: the queue grows, by the same kind of memory.
            for entries in ["1", "5000"] {
                let settings = [
                    ("event_entry", entry),
                    ("event_queue", memory),
                    ("event_entries", entries),
                ];
                completions_arrive(&settings);
                let arrangement = ("interrupt_arrangement", "one_queue_one_vector");
                completions_arrive(&[&settings[..], &[arrangement]].concat());
            }
        }
    }
}

#[test]
fn completions_arrive_with_every_moderation() {
    for moderation in ["adaptive", "100us", "100us,2"] {
        for acknowledge in ["eager", "lazy"] {
            let settings = [
                ("event_moderation", moderation),
                ("event_acknowledge", acknowledge),
            ];
            completions_arrive(&settings);
            let shared = ("interrupt_arrangement", "duty_queues_processor_vectors");
            completions_arrive(&[&settings[..], &[shared]].concat());
        }
    }
}

#[test]
fn lazy_arming_has_a_bounded_interval() {
    let device = device(&[("handlers", "1")]);
    let arming = Arming::WhenIdle(Duration::from_secs(1));
    let refused = device.set_handler(&HandlerOptions {
        arming: Some(arming),
        ..HandlerOptions::default()
    });
    let says = "an event queue can be polled at intervals of up to 100ms, not 1s";
    assert!(refused.unwrap_err().to_string().contains(says));
    let handler = device.set_handler(&HandlerOptions::default()).unwrap();
    assert!(
        handler
            .set_arming(Arming::WhenIdle(Duration::ZERO))
            .is_err()
    );
    handler.set_arming(Arming::Now).unwrap();
}
