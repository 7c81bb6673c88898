//! Tests of completion queues: order, arming, overflow, resize, and a poller that races with producers.

use super::*;
use crate::wc::{Status, WcOp};

fn wc(id: u64) -> Wc {
    Wc {
        id,
        qpn: (id % 2) as u32,
        status: Status::Success,
        op: WcOp::Receive,
        len: 0,
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}

fn ids(cq: &Cq) -> Vec<u64> {
    let mut out = [wc(0); 100];
    let n = cq.poll(&mut out);
    out[..n].iter().map(|w| w.id).collect()
}

#[test]
fn entries_come_out_in_order_and_in_pieces() {
    let cq = Cq::new(1, 10).unwrap();
    for id in 0..5 {
        assert!(cq.push(wc(id), &mut Outbox::new()));
    }
    let mut two = [wc(9); 2];
    assert_eq!(cq.poll(&mut two), 2);
    assert_eq!([two[0].id, two[1].id], [0, 1]);
    assert_eq!((cq.len(), ids(&cq)), (3, vec![2, 3, 4]));
    assert_eq!(cq.poll(&mut two), 0);
}

#[test]
fn one_notification_per_arming() {
    let cq = Cq::new(7, 10).unwrap();
    let mut outbox = Outbox::new();
    cq.push(wc(1), &mut outbox);
    assert!(outbox.events().is_empty(), "not armed");
    cq.arm(Arm::Next);
    cq.push(wc(2), &mut outbox);
    cq.push(wc(3), &mut outbox);
    assert_eq!(outbox.events(), [Event::Completion { cq: 7 }]);
}

#[test]
fn solicited_arming_waits_for_what_is_urgent() {
    let cq = Cq::new(7, 10).unwrap();
    let mut outbox = Outbox::new();
    cq.arm(Arm::Solicited);
    cq.push(wc(1), &mut outbox);
    assert!(outbox.events().is_empty());
    let urgent = Wc {
        solicited: true,
        ..wc(2)
    };
    cq.push(urgent, &mut outbox);
    assert_eq!(outbox.events().len(), 1);
    cq.arm(Arm::Next);
    cq.arm(Arm::Solicited);
    cq.push(wc(3), &mut outbox);
    assert_eq!(outbox.events().len(), 2, "next outweighs solicited");
}

#[test]
fn overflow_is_noticed_and_told_once() {
    let cq = Cq::new(7, 2).unwrap();
    let mut outbox = Outbox::new();
    assert!(cq.push(wc(1), &mut outbox) && cq.push(wc(2), &mut outbox));
    assert!(!cq.push(wc(3), &mut outbox) && !cq.push(wc(4), &mut outbox));
    assert_eq!(outbox.events(), [Event::CqOverflow { cq: 7 }]);
    assert!(cq.has_overflowed());
    assert_eq!(ids(&cq), [1, 2]);
}

#[test]
fn sizes_and_resizing() {
    assert_eq!(Cq::new(1, 0).unwrap_err(), CqError::Size(0));
    assert!(Cq::new(1, MAX_ENTRIES + 1).is_err());
    let cq = Cq::new(1, 3).unwrap();
    for id in 0..3 {
        cq.push(wc(id), &mut Outbox::new());
    }
    let (waiting, wanted) = (3, 2);
    assert_eq!(cq.resize(2), Err(CqError::Waiting { waiting, wanted }));
    cq.resize(4).unwrap();
    assert!(cq.push(wc(3), &mut Outbox::new()));
    assert_eq!(ids(&cq), [0, 1, 2, 3]);
}

#[test]
fn a_destroyed_queue_pair_leaves_no_entries() {
    let cq = Cq::new(1, 10).unwrap();
    for id in 0..6 {
        cq.push(wc(id), &mut Outbox::new());
    }
    cq.forget(1);
    assert_eq!(ids(&cq), [0, 2, 4]);
    assert!(cq.is_empty());
}

#[test]
fn nothing_is_lost_between_producers_and_a_poller_that_arms() {
    let cq = Cq::new(1, 100_000).unwrap();
    let fired = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for base in [0, 1_000_000] {
            let (cq, fired) = (&cq, &fired);
            scope.spawn(move || {
                for id in 0..20_000 {
                    let mut outbox = Outbox::new();
                    assert!(cq.push(wc(base + id), &mut outbox));
                    fired.fetch_add(outbox.events().len(), Ordering::SeqCst);
                }
            });
        }
        let mut seen = [0, 0];
        let mut armed = 0;
        while seen[0] + seen[1] < 40_000 {
            cq.arm(Arm::Next);
            armed += 1;
            let mut out = [wc(0); 64];
            let n = cq.poll(&mut out);
            for w in &out[..n] {
                let side = usize::from(w.id >= 1_000_000);
                assert_eq!(
                    w.id % 1_000_000,
                    seen[side],
                    "each producer's order is kept"
                );
                seen[side] += 1;
            }
        }
        assert!(fired.load(Ordering::SeqCst) <= armed);
    });
}
