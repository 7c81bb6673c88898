//! Control messages of a hostile peer with the extensions, one named test each.

use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Control, ReadV2Request};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Stag, To};

use super::{answered, send, unspecified};
use crate::testing::{Bench, agreement, caps, control, fpdu, settings, tagged, timer, untagged};
use crate::{Claim, Message, Role, Violation};

fn rsn(n: u32) -> Rsn {
    Rsn::wrapping(n)
}

fn impossible(kind: &'static str, low: u32, high: u32, got: Rsn) -> Violation {
    let (low, high) = (rsn(low), rsn(high));
    Violation::Impossible {
        kind,
        low,
        high,
        got,
    }
}

fn write(len: u32) -> Message {
    Message::Write {
        stag: Stag::new(1),
        to: To::new(0),
        len,
    }
}

#[test]
fn impossible_control_numbers_are_refused() {
    // One request was sent, number 0, and nothing is acknowledged.
    let (one, two, back) = (rsn(1), rsn(2), rsn(0xff_ffff));
    let rnr = |rsn| Control::Rnr {
        rsn,
        timer: timer(),
    };
    let cases = [
        (Control::Ack(two), impossible("ACK", 0, 1, two)),
        (Control::Ack(back), impossible("ACK", 0, 1, back)),
        (rnr(one), impossible("RNR", 0, 0, one)),
        (rnr(back), impossible("RNR", 0, 0, back)),
        (Control::Ready(Rsn::ZERO), Violation::OutOfPlace("READY")),
        (Control::Resume(Rsn::ZERO), Violation::OutOfPlace("RESUME")),
        (Control::Caps(caps()), Violation::Caps),
    ];
    for (said, violation) in cases {
        let mut bench = Bench::verbena();
        bench.send(write(4));
        assert_eq!(bench.expect_violation(&control(&said, 2)), violation);
        answered(&mut bench, unspecified());
    }
}

#[test]
fn impossible_rnr_ready_and_resume_are_refused() {
    // RNR for this side's request 0: the peer may now send READY(0), and nothing else about it.
    let refused = Control::Rnr {
        rsn: Rsn::ZERO,
        timer: timer(),
    };
    let cases = [
        (Control::Ready(rsn(1)), impossible("READY", 0, 0, rsn(1))),
        (Control::Ack(rsn(1)), impossible("ACK", 0, 0, rsn(1))),
        (refused, Violation::OutOfPlace("RNR")),
    ];
    for (said, violation) in cases {
        let mut bench = Bench::verbena();
        bench.send(write(4));
        bench.feed(&control(&refused, 2)).unwrap();
        assert_eq!(bench.expect_violation(&control(&said, 3)), violation);
        answered(&mut bench, unspecified());
    }
    // RNR for the peer's request 0: RESUME(0) follows READY, not before and with no other number.
    for (posted, sent, said, violation) in [
        (false, true, 0, Violation::OutOfPlace("RESUME")),
        (true, false, 0, Violation::OutOfPlace("RESUME")),
        (true, true, 1, impossible("RESUME", 0, 0, rsn(1))),
    ] {
        let mut bench = Bench::verbena();
        bench.claim = Claim::NotReady { timer: timer() };
        bench.feed(&fpdu(send(1, 0, true), b"no place")).unwrap();
        if posted {
            bench.stream.receive_posted();
        }
        if sent {
            assert!(!bench.control(false).is_empty());
        }
        let resume = Control::Resume(rsn(said));
        assert_eq!(bench.expect_violation(&control(&resume, 2)), violation);
        answered(&mut bench, unspecified());
    }
}

#[test]
fn ack_of_an_unfinished_message_is_refused() {
    let mut bench = Bench::verbena();
    let mut outgoing = bench.stream.begin(write(5000)).unwrap();
    bench.stream.next_frame(&mut outgoing).unwrap();
    // What was sent before it may be acknowledged: nothing, here.
    bench.feed(&control(&Control::Ack(Rsn::ZERO), 2)).unwrap();
    let refused = bench.expect_violation(&control(&Control::Ack(rsn(1)), 3));
    assert_eq!(refused, impossible("ACK", 0, 0, rsn(1)));
    answered(&mut bench, unspecified());
}

#[test]
fn malformed_control_messages_are_refused() {
    let header = |word| Untagged {
        ulp: word,
        ..untagged(Opcode::Control, 2)
    };
    for (word, body) in [
        (0, &b""[..]),
        (8 << 24, b"x"),
        (9 << 24, b""),
        (0xff << 24, b""),
        (2 << 24, b"x"),
        (3 << 24, b""),
        (3 << 24, &[32, 0, 0, 0]),
        (7 << 24, &[9, 0, 0, 0]),
    ] {
        let mut bench = Bench::verbena();
        let refused = bench.expect_violation(&fpdu(header(word), body));
        assert!(matches!(refused, Violation::Malformed(_)), "{word:#x}");
    }
}

#[test]
fn messages_before_caps_are_refused() {
    for bytes in [
        fpdu(send(1, 0, true), b"x"),
        fpdu(tagged(Opcode::Write, 1, 0), b""),
        control(&Control::Ack(Rsn::ZERO), 1),
    ] {
        let agreed = agreement(Role::Responder, true);
        let mut bench = Bench::new(&agreed, settings());
        assert_eq!(bench.expect_violation(&bytes), Violation::Caps);
    }
}

#[test]
fn rnr_for_partly_answered_read_is_refused() {
    let mut bench = Bench::verbena();
    bench.send(Message::ReadV2Request(ReadV2Request {
        size: 8,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    }));
    let half = Untagged {
        last: false,
        ..untagged(Opcode::ReadV2Response, 1)
    };
    bench.feed(&fpdu(half, b"0123")).unwrap();
    let rnr = Control::Rnr {
        rsn: Rsn::ZERO,
        timer: timer(),
    };
    let refused = bench.expect_violation(&control(&rnr, 2));
    assert_eq!(refused, Violation::OutOfPlace("RNR"));
}
