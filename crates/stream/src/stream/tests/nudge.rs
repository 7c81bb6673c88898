//! The empty Write for a standard peer that may not have read the first frame.

use verbena_wire::rdmap::Opcode;

use crate::startup::Role;
use crate::testing::{Bench, agreement, fpdu, settings, untagged};
use crate::{Claim, Message};

fn message(len: u32) -> Message {
    Message::Send {
        solicited: false,
        invalidate: None,
        len,
    }
}

fn bench(role: Role, extensions: bool) -> Bench {
    let mut bench = Bench::new(&agreement(role, extensions), settings());
    bench.claim = Claim::Granted { capacity: 64 };
    let _ = bench.control(true);
    bench
}

fn send_empty(bench: &mut Bench) {
    let mut outgoing = bench.stream.begin(message(0)).unwrap();
    while bench.stream.next_frame(&mut outgoing).is_some() {}
}

#[test]
fn a_silent_peer_is_sent_an_empty_write() {
    let mut bench = bench(Role::Initiator, false);
    assert!(!bench.stream.nudge(), "nothing that it could have missed");
    send_empty(&mut bench);
    assert!(bench.stream.nudge());
    assert!(bench.stream.begin(message(0)).is_err(), "it goes first");
    let frame = bench.control(false);
    // Length, DDP and RDMAP control, STag 1, offset 0.
    assert_eq!(frame[..16], *b"\0\x0e\xc1\x40\0\0\0\x01\0\0\0\0\0\0\0\0");
    assert_eq!(frame.len(), 20);
    assert!(bench.control(false).is_empty());
    send_empty(&mut bench);
}

#[test]
fn peer_that_has_sent_is_not_nudged() {
    let mut bench = bench(Role::Initiator, false);
    send_empty(&mut bench);
    bench.feed(&fpdu(untagged(Opcode::Send, 1), b"")).unwrap();
    assert!(!bench.stream.nudge());
    assert!(bench.control(false).is_empty());
}

#[test]
fn no_nudge_inside_a_message() {
    let mut bench = bench(Role::Initiator, false);
    let mut outgoing = bench.stream.begin(message(1 << 20)).unwrap();
    assert!(bench.stream.next_frame(&mut outgoing).is_some());
    assert!(!bench.stream.nudge());
    assert!(
        bench.control(false).is_empty(),
        "nothing between its frames"
    );
}

#[test]
fn responders_and_extended_streams_do_not_nudge() {
    let mut responder = bench(Role::Responder, false);
    responder
        .feed(&fpdu(untagged(Opcode::Send, 1), b""))
        .unwrap();
    send_empty(&mut responder);
    assert!(!responder.stream.nudge());
    assert!(!bench(Role::Initiator, true).stream.nudge());
}
