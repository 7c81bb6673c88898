//! Tests of DDP order: numbers that wrap, separate contexts, requests that are dropped.

use super::*;
use crate::testing::{tagged, untagged};

fn send(msn: u32, mo: u32, last: bool) -> Untagged {
    Untagged {
        last,
        mo: Mo::new(mo),
        ..untagged(Opcode::Send, msn)
    }
}

fn position(first: bool, offset: u32) -> Result<Position, Violation> {
    Ok(Position { first, offset })
}

#[test]
fn message_numbers_wrap_to_zero() {
    let mut order = Order::new(false);
    order.expected[0] = Msn::new(u32::MAX);
    assert_eq!(
        order.accept_untagged(&send(u32::MAX, 0, true), 4, false),
        position(true, 0)
    );
    assert_eq!(order.expected(Qn::SEND), Msn::new(0));
    assert_eq!(
        order.accept_untagged(&send(0, 0, true), 4, false),
        position(true, 0)
    );
}

#[test]
fn each_queue_counts_its_own_messages() {
    let mut order = Order::new(false);
    for opcode in [Opcode::ReadRequest, Opcode::AtomicRequest] {
        let expected = order.expected(Qn::READ_REQUEST).get();
        assert_eq!(
            order.accept_single(&untagged(opcode, expected), false),
            Ok(())
        );
    }
    assert_eq!(order.expected(Qn::READ_REQUEST), Msn::new(3));
    assert_eq!(order.expected(Qn::SEND), Msn::FIRST);
    assert_eq!(
        order.accept_control(&untagged(Opcode::Terminate, 1)),
        Ok(())
    );
}

#[test]
fn message_longer_than_u32_max_is_refused() {
    let mut order = Order::new(false);
    assert!(
        order
            .accept_untagged(&send(1, 0, false), u32::MAX - 10, false)
            .is_ok()
    );
    assert!(
        order
            .accept_untagged(&send(1, u32::MAX - 10, false), 10, false)
            .is_ok()
    );
    let beyond = order.accept_untagged(&send(1, u32::MAX, true), 1, false);
    let mo = Mo::new(u32::MAX);
    assert_eq!(beyond, Err(Violation::OffsetWrap { mo, len: 1 }));

    let mut order = Order::new(false);
    let piece = |to| Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, to)
    };
    assert!(order.accept_tagged(&piece(0), u32::MAX, false).is_ok());
    let endless = order.accept_tagged(&piece(u64::from(u32::MAX)), 1, false);
    assert_eq!(endless, Err(Violation::TaggedTooLong));
}

#[test]
fn an_immediate_may_not_overtake_a_send() {
    let mut order = Order::new(false);
    order.accept_untagged(&send(1, 0, false), 5, false).unwrap();
    let (open, got) = (Opcode::Send, Opcode::Immediate);
    let overtaken = order.accept_single(&untagged(got, 2), false);
    assert_eq!(overtaken, Err(Violation::Interleaved { open, got }));
}

#[test]
fn dropping_requests_keeps_responses_and_numbers() {
    let mut order = Order::new(false);
    order.accept_untagged(&send(1, 0, false), 5, false).unwrap();
    let response = Tagged {
        last: false,
        ..tagged(Opcode::ReadResponse, 1, 0)
    };
    order.accept_tagged(&response, 5, false).unwrap();
    order.drop_requests();
    assert!(order.is_mid_message(), "the response goes on");
    let rest = tagged(Opcode::ReadResponse, 1, 5);
    assert_eq!(order.accept_tagged(&rest, 5, false), position(false, 5));
    assert_eq!(
        order.accept_untagged(&send(2, 0, true), 5, false),
        position(true, 0)
    );
}

#[test]
fn discarded_strict_peer_may_abandon_a_message() {
    let mut order = Order::new(true);
    order.accept_untagged(&send(1, 0, false), 5, true).unwrap();
    let response = tagged(Opcode::ReadResponse, 1, 0);
    assert_eq!(order.accept_tagged(&response, 5, true), position(true, 0));
    // A message that was abandoned cannot be continued.
    let again = order.accept_untagged(&send(1, 5, true), 5, true);
    assert!(matches!(again, Err(Violation::Offset { .. })));
}
