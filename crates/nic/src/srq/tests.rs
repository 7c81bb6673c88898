//! Tests of shared receive queues: the limit, and the order of waiters.

use super::*;

fn queue() -> Srq {
    Srq::new(5, Pd(1), 10, 1)
}

fn post(srq: &Srq, id: u64) -> Option<u32> {
    srq.post(&ReceiveWr { id, scatter: &[] }).unwrap()
}

#[test]
fn limit_event_is_raised_once() {
    let srq = queue();
    for id in 0..4 {
        post(&srq, id);
    }
    assert!(!srq.set_limit(11) && srq.set_limit(3));
    let mut outbox = Outbox::new();
    srq.take(1, &mut outbox);
    assert!(outbox.events().is_empty(), "three are left");
    srq.take(1, &mut outbox);
    srq.take(1, &mut outbox);
    assert_eq!(outbox.events(), [Event::SrqLimit { srq: 5 }]);
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let srq = queue();
    let mut outbox = Outbox::new();
    for qpn in [7, 8, 7] {
        assert_eq!(srq.take(qpn, &mut outbox), None);
    }
    assert_eq!(post(&srq, 1), Some(7));
    assert_eq!(srq.take(9, &mut outbox), None, "the receive is promised");
    assert_eq!(srq.take(7, &mut outbox).map(|r| r.id), Some(1));
    assert_eq!(
        [post(&srq, 2), post(&srq, 3), post(&srq, 4)],
        [Some(8), Some(9), None]
    );
    assert_eq!(
        srq.take(6, &mut outbox).map(|r| r.id),
        Some(2),
        "one is left for all"
    );
    assert_eq!(srq.take(6, &mut outbox), None);
}

#[test]
fn leaving_waiter_passes_reserved_receive_on() {
    let srq = queue();
    let mut outbox = Outbox::new();
    for qpn in [7, 8] {
        assert_eq!(srq.take(qpn, &mut outbox), None);
    }
    assert_eq!(post(&srq, 1), Some(7));
    assert_eq!(srq.leave(7), Some(8));
    assert_eq!(srq.take(8, &mut outbox).map(|r| r.id), Some(1));
    assert_eq!(srq.leave(8), None);
}
