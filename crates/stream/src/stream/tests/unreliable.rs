//! An unreliable connection drops a message that is too long for its receive, and continues (docs/connections.md).

use verbena_wire::ddp::Untagged;
use verbena_wire::ext::{Control, QpType};
use verbena_wire::rdmap::{Immediate, Opcode};
use verbena_wire::{Mo, Rsn};

use crate::startup::Role;
use crate::stream::State;
use crate::testing::{Bench, agreement, caps, control, fpdu, settings, untagged};
use crate::{Claim, Delivery, Message, Place, Settings};

fn unreliable() -> Settings {
    let mut settings = settings();
    settings.drop_overlong = true;
    settings.caps.qp_type = QpType::Uc;
    settings
}

fn bench(capacity: u32) -> Bench {
    let mut bench = Bench::new(&agreement(Role::Initiator, true), unreliable());
    let _ = bench.control(true);
    bench.feed(&control(&Control::Caps(caps()), 1)).unwrap();
    bench.delivered.clear();
    bench.claim = Claim::Granted { capacity };
    bench
}

fn send(msn: u32, mo: u32, last: bool) -> Untagged {
    Untagged {
        last,
        mo: Mo::new(mo),
        ..untagged(Opcode::Send, msn)
    }
}

/// The message 0, which is too long, is dropped and counts; message 1 takes the receive.
fn assert_continues(mut bench: Bench) {
    assert_eq!(bench.delivered, [Delivery::Discarded(Opcode::Send)]);
    let acked = control(&Control::Ack(Rsn::wrapping(1)), 2);
    assert_eq!(bench.control(true), acked, "it counts as executed");
    bench.feed(&fpdu(send(2, 0, true), b"")).unwrap();
    let rsn = Rsn::wrapping(1);
    assert!(matches!(bench.delivered[1], Delivery::Send { rsn: r, len: 0, .. } if r == rsn));
    assert_eq!(bench.stream.state(), State::Running);
    assert_eq!(bench.stream.cause(), None);
}

#[test]
fn overlong_single_segment_message_is_dropped() {
    let mut bench = bench(4);
    bench.feed(&fpdu(send(1, 0, true), b"01234")).unwrap();
    assert_eq!(bench.placed, [(Place::Discard, b"01234".to_vec())]);
    assert_continues(bench);
}

#[test]
fn zero_capacity_takes_only_empty_messages() {
    let mut overlong = bench(0);
    overlong.feed(&fpdu(send(1, 0, true), b"0")).unwrap();
    assert_eq!(overlong.placed, [(Place::Discard, b"0".to_vec())]);
    assert_continues(overlong);
    // A message without payload fits a receive of zero bytes.
    let mut empty = bench(0);
    empty.feed(&fpdu(send(1, 0, true), b"")).unwrap();
    assert!(matches!(
        empty.delivered[..],
        [Delivery::Send { len: 0, .. }]
    ));
}

#[test]
fn overlong_segmented_message_is_dropped_at_every_split() {
    // It fits until its second segment; the third is dropped although it would fit alone.
    let segments = [
        fpdu(send(1, 0, false), b"0123"),
        fpdu(send(1, 4, false), b"4567"),
        fpdu(send(1, 8, true), b"89"),
    ];
    let bytes = segments.concat();
    for at in 0..=bytes.len() {
        let mut bench = bench(7);
        bench.feed(&bytes[..at]).unwrap();
        bench.feed(&bytes[at..]).unwrap();
        for (place, piece) in &bench.placed {
            let fits = piece.iter().all(|b| *b < b'4');
            assert_eq!(matches!(place, Place::Receive { .. }), fits, "{place:?}");
        }
        assert_continues(bench);
    }
}

#[test]
fn immediate_data_is_outside_receive_capacity() {
    let message = |len| Message::SendImm {
        solicited: false,
        invalidate: None,
        immediate: Immediate::parse(&[9; 8]).unwrap(),
        len,
    };
    for (len, fits) in [(2500, true), (2501, false)] {
        let mut sender = Bench::verbena();
        let bytes = sender.send(message(len));
        let mut bench = bench(2500);
        bench.feed(&bytes).unwrap();
        let opcode = message(len).opcode();
        let dropped = bench.delivered == [Delivery::Discarded(opcode)];
        assert_eq!(dropped, !fits);
    }
}

#[test]
fn overlong_message_from_standard_peer_is_dropped() {
    let mut bench = Bench::new(&agreement(Role::Initiator, false), unreliable());
    bench.claim = Claim::Granted { capacity: 4 };
    bench.feed(&fpdu(send(1, 0, true), b"01234")).unwrap();
    assert_eq!(bench.delivered, [Delivery::Discarded(Opcode::Send)]);
    assert_eq!(bench.stream.state(), State::Running);
}
