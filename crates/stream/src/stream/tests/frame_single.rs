//! A message framed by `frame_single` has the same bytes as by `begin` and `next_frame`.

use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Stag, To};

use crate::Message;
use crate::startup::Role;
use crate::stream::ControlPending;
use crate::testing::{Bench, agreement, fpdu, patterned, settings, untagged};

fn messages() -> Vec<Message> {
    let send = |solicited, len| Message::Send {
        solicited,
        invalidate: None,
        len,
    };
    let write = |len| Message::Write {
        stag: Stag::new(0x1234),
        to: To::new(99),
        len,
    };
    vec![
        send(false, 0),
        send(true, 5),
        write(0),
        write(7),
        send(false, 64),
        write(900),
    ]
}

#[test]
fn whole_gives_the_same_frame() {
    for mut long in [Bench::standard(), Bench::verbena()] {
        let mut short = long.clone();
        for message in messages() {
            let (mut bytes, len) = (Vec::new(), message.payload_len());
            let (plain, rsn) = short
                .stream
                .frame_single(&message)
                .expect("one plain frame");
            plain.append(&mut bytes, |stage| stage.extend(patterned(len)));
            assert_eq!(plain.size(), bytes.len());
            assert_eq!(bytes, long.send(message));
            assert_eq!(rsn.next(), short.stream.accounting().requester.next());
            let accountings = [&long, &short].map(|b| format!("{:?}", b.stream.accounting()));
            assert_eq!(accountings[0], accountings[1]);
        }
    }
}

#[test]
fn whole_refuses_segmented_or_special_messages() {
    let mut bench = Bench::verbena();
    let long = Message::Send {
        solicited: false,
        invalidate: None,
        len: 4000,
    };
    let strict = Message::Send {
        solicited: false,
        invalidate: Some(Stag::new(1)),
        len: 4,
    };
    let before = format!("{:?}", bench.stream);
    for message in [&long, &strict] {
        assert!(bench.stream.frame_single(message).is_none());
        assert_eq!(before, format!("{:?}", bench.stream));
    }
    // Another message is unfinished.
    let _open = bench.stream.begin(long).unwrap();
    assert!(bench.stream.frame_single(&messages()[1]).is_none());
    for (crc, markers) in [(true, false), (false, true)] {
        let mut agreed = agreement(Role::Initiator, false);
        (agreed.crc, agreed.markers_tx) = (crc, markers);
        let mut summed = Bench::new(&agreed, settings());
        assert!(summed.stream.frame_single(&messages()[1]).is_none());
        assert_eq!(summed.stream.poll_ack(true), Err(ControlPending));
    }
}

#[test]
fn poll_ack_gives_the_same_frame() {
    let mut long = Bench::verbena();
    long.feed(&fpdu(untagged(Opcode::Send, 1), &[1; 8]))
        .unwrap();
    let mut short = long.clone();
    assert_eq!(short.stream.poll_ack(false), Ok(None), "it can wait");
    let ack = short.stream.poll_ack(true).unwrap().expect("it is due");
    let mut bytes = Vec::new();
    ack.append(&mut bytes, |_| ());
    assert_eq!(bytes, long.control(true));
    assert_eq!(short.stream.poll_ack(true), Ok(None), "said once");
    assert_eq!(short.stream.accounting().responder.next(), Rsn::wrapping(1));
}
