//! Tests of work queues seen from both ends.

use super::*;
use crate::wr::{Data, Flags, SendOp, SendWr};

fn wqe(id: u64) -> Wqe {
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    let wr = SendWr {
        id,
        op,
        flags: Flags::NONE,
        data: Data::Gather(&[]),
    };
    Wqe::new(&wr, 0)
}

fn receive(id: u64) -> Receive {
    Receive {
        id,
        scatter: Default::default(),
        fault: None,
    }
}

#[test]
fn send_queue_slot_is_freed_at_completion() {
    let (tails, mut heads) = queues();
    assert!(tails.post_send(wqe(1), 2));
    assert_eq!(tails.post_send_numbered(wqe(2), 2), Some(1));
    assert!(!tails.post_send(wqe(3), 2));
    assert_eq!(heads.next_send().unwrap().id, 1);
    assert_eq!(
        tails.post_send_numbered(wqe(3), 2),
        None,
        "begun, not ended"
    );
    heads.ended(1);
    assert!(tails.post_send(wqe(3), 2));
    assert_eq!(tails.waiting(), (2, 0));
}

#[test]
fn a_receive_makes_room_when_it_is_taken() {
    let (tails, mut heads) = queues();
    assert!(!heads.has_receive());
    assert!(tails.post_receive(receive(1), 1) && !tails.post_receive(receive(2), 1));
    assert!(heads.has_receive());
    assert_eq!(heads.next_receive().unwrap().id, 1);
    assert!(tails.post_receive(receive(2), 1));
    assert_eq!(tails.waiting(), (0, 1));
}

#[test]
fn posters_see_every_state_change() {
    let (tails, heads) = queues();
    assert_eq!(tails.status.state(), QpState::Reset);
    for state in QpState::ALL {
        heads.publish_state(state);
        assert_eq!(tails.status.state(), state);
    }
}

/// Many threads post; nothing is lost, and each thread's requests keep their order.
#[test]
fn concurrent_posters_keep_their_order() {
    let (tails, mut heads) = queues();
    let (tails, each) = (&tails, 2000_u64);
    std::thread::scope(|scope| {
        for poster in 0..3_u64 {
            scope.spawn(move || {
                for i in 0..each {
                    while !tails.post_send(wqe(poster << 32 | i), 50) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 3];
        while next != [each; 3] {
            let Some(wqe) = heads.next_send() else {
                std::thread::yield_now();
                continue;
            };
            let (poster, i) = ((wqe.id >> 32) as usize, wqe.id & 0xffff_ffff);
            assert_eq!(i, next[poster]);
            next[poster] += 1;
            heads.ended(1);
        }
    });
    assert_eq!(tails.waiting(), (0, 0));
}

#[test]
fn receive_notifies_unless_none_is_awaited() {
    let (tails, heads) = queues();
    assert!(tails.post_receive(receive(1), 8) && tails.must_notify_receive());
    assert!(
        !heads.publish_receives_idle(true),
        "an idle receive queue is not searched"
    );
    assert!(tails.post_receive(receive(2), 8) && !tails.must_notify_receive());
    assert!(heads.publish_receives_idle(false), "one lies there");
    assert!(!heads.publish_receives_idle(false), "told once");
    assert!(tails.must_notify_receive());
}

#[cfg(loom)]
mod model {
    use super::*;

    /// A posting thread that need not ring, against a connection that begins to wait: one of the two sees the other.
    #[test]
    fn concurrent_receive_is_found_or_notified() {
        loom::model(|| {
            let (tails, mut heads) = queues();
            heads.publish_receives_idle(true);
            let poster = loom::thread::spawn(move || {
                assert!(tails.post_receive(receive(1), 8));
                tails.must_notify_receive()
            });
            let found = heads.next_receive().is_some();
            let found = found || heads.publish_receives_idle(false);
            let rings = poster.join().unwrap();
            assert!(found || rings, "neither side sees the receive");
        });
    }
}
