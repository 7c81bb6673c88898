//! Counts at their limits, and a model of both sides: neither overruns the other nor starves.

use std::collections::VecDeque;

use super::*;

#[test]
fn a_sender_stays_within_ring_and_messages() {
    let mut out = Outgoing::new(10, 2);
    assert_eq!(out.room(), 10);
    assert_eq!(out.send(7), 0);
    assert_eq!(out.room(), 3);
    assert_eq!(out.send(1), 7);
    assert_eq!(out.room(), 0, "two messages are under way");
    out.credit(5, 1).unwrap();
    assert_eq!(out.room(), 2, "up to the end of the ring");
    assert_eq!(out.send(2), 8);
    out.credit(10, 3).unwrap();
    assert_eq!((out.room(), out.send(4)), (10, 0));
}

#[test]
fn impossible_credit_is_a_violation() {
    let mut out = Outgoing::new(10, 2);
    out.send(7);
    out.credit(3, 1).unwrap();
    for (read, messages) in [(8, 1), (2, 1), (3, 2), (3, 0), (u64::MAX, u64::MAX)] {
        assert!(out.credit(read, messages).is_err(), "{read} {messages}");
    }
    assert_eq!(out.room(), 3, "nothing of it was believed");
}

#[test]
fn impossible_message_is_a_violation() {
    let mut incoming = Incoming::new(10, 2);
    assert!(incoming.arrive(0).is_err());
    assert!(incoming.arrive(11).is_err());
    incoming.arrive(8).unwrap();
    assert!(incoming.arrive(3).is_err());
    incoming.consume(8);
    assert!(incoming.arrive(3).is_err(), "the peer was not told yet");
    assert!(incoming.is_credit_due());
    assert_eq!(incoming.take_credit(), (8, 1));
    assert!(incoming.arrive(3).is_err(), "not in one piece");
    incoming.arrive(2).unwrap();
    incoming.arrive(8).unwrap();
    assert_eq!(incoming.unread_chunk(0), (8, 2));
    assert_eq!(incoming.unread_chunk(2), (0, 8));
    assert_eq!(incoming.unread_chunk(10), (8, 0));
}

/// A sender that sends whatever it may, a receiver that reads small random amounts, and delayed credits.
#[test]
fn random_traffic_neither_overruns_nor_stalls() {
    let mut random = 1_u64;
    let mut dice = move |sides: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % sides
    };
    for (ring, slots) in [(1, 1), (1, 9), (2, 1), (7, 3), (64, 1), (64, 8), (1000, 5)] {
        let (mut out, mut incoming) = (Outgoing::new(ring, slots), Incoming::new(ring, slots));
        let mut data = VecDeque::new();
        let mut credits = VecDeque::new();
        let mut moved = 0;
        for step in 0..20_000 {
            match dice(4) {
                0 | 1 if out.room() > 0 => {
                    let len = 1 + dice(out.room());
                    out.send(len);
                    data.push_back(len);
                }
                2 => {
                    if let Some(len) = data.pop_front() {
                        incoming.arrive(len).unwrap();
                    }
                    let read = dice(incoming.unread() + 1);
                    incoming.consume(read);
                    moved += read;
                }
                3 if step % 3 == 0 => {
                    if let Some((read, messages)) = credits.pop_front() {
                        out.credit(read, messages).unwrap();
                    }
                }
                _ => {}
            }
            if incoming.is_credit_due() {
                credits.push_back(incoming.take_credit());
            }
            assert!(credits.len() <= CREDITS, "ring {ring}, {slots} messages");
            assert!(data.len() <= slots.into());
            // Everything has arrived, was read and credited: then there is room.
            if data.is_empty() && incoming.unread() == 0 && credits.is_empty() {
                assert!(out.room() > 0, "ring {ring}, {slots} messages");
            }
        }
        assert!(moved > 100, "ring {ring}, {slots} messages: {moved}");
    }
}
