//! Requests for a shared receive queue of an XRC target: when its number is sent, where it is accepted, and what follows it.

use verbena_wire::ext::{Caps, Control, QpType};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Srqn};

use crate::testing::{Bench, agreement, caps, control, fpdu, settings, timer, untagged};
use crate::{BeginError, Claim, Delivery, Message, Role, Settings, Violation};

const SEND: Message = Message::Send {
    solicited: false,
    invalidate: None,
    len: 4,
};

fn srq(number: u32) -> Srqn {
    Srqn::wrapping(number)
}

/// A stream of this type past the exchange of CAPS.
fn bench(qp_type: QpType) -> Bench {
    let settings = Settings {
        caps: Caps { qp_type, ..caps() },
        ..settings()
    };
    let mut bench = Bench::new(&agreement(Role::Initiator, true), settings);
    let _ = bench.control(true);
    let peer = Caps {
        qp_type: qp_type.peer(),
        ..caps()
    };
    bench.feed(&control(&Control::Caps(peer), 1)).unwrap();
    bench.delivered.clear();
    bench
}

#[test]
fn number_is_sent_once_before_its_requests() {
    let mut bench = bench(QpType::XrcSend);
    assert!(bench.stream.name_srq(srq(5)));
    assert_eq!(
        bench.stream.begin(SEND).unwrap_err(),
        BeginError::NotReady,
        "the peer does not know the number yet"
    );
    assert_eq!(bench.control(false), control(&Control::Srq(srq(5)), 2));
    bench.send(SEND);
    assert!(!bench.stream.name_srq(srq(5)), "the peer knows it");
    bench.send(SEND);
    assert!(bench.stream.name_srq(srq(6)));
    assert!(bench.stream.name_srq(srq(7)), "the first was not sent");
    assert_eq!(bench.control(false), control(&Control::Srq(srq(7)), 3));
    bench.send(SEND);
}

#[test]
fn number_follows_resume() {
    let mut bench = bench(QpType::XrcSend);
    assert!(bench.stream.name_srq(srq(5)));
    let _ = bench.control(false);
    bench.send(SEND);
    let refused = Control::Rnr {
        rsn: Rsn::ZERO,
        timer: timer(),
    };
    bench.feed(&control(&refused, 2)).unwrap();
    let ready = Control::Ready(Rsn::ZERO);
    bench.feed(&control(&ready, 3)).unwrap();
    assert!(bench.stream.name_srq(srq(6)));
    let mut expected = control(&Control::Resume(Rsn::ZERO), 3);
    expected.extend(control(&Control::Srq(srq(6)), 4));
    assert_eq!(bench.control(false), expected);
    bench.send(SEND);
}

#[test]
fn targets_alone_accept_numbers() {
    let said = control(&Control::Srq(srq(5)), 2);
    let mut target = bench(QpType::XrcRecv);
    target.feed(&said).unwrap();
    assert_eq!(target.delivered, [Delivery::Srq(srq(5))]);
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        let mut other = bench(qp_type);
        let refused = other.expect_violation(&said);
        assert_eq!(refused, Violation::OutOfPlace("SRQ"));
    }
}

#[test]
fn numbers_are_delivered_while_requests_are_discarded() {
    let mut bench = bench(QpType::XrcRecv);
    bench.claim = Claim::NotReady { timer: timer() };
    bench.feed(&control(&Control::Srq(srq(5)), 2)).unwrap();
    bench
        .feed(&fpdu(untagged(Opcode::Send, 1), b"one"))
        .unwrap();
    bench.feed(&control(&Control::Srq(srq(6)), 3)).unwrap();
    bench
        .feed(&fpdu(untagged(Opcode::Send, 2), b"two"))
        .unwrap();
    let discarded = Delivery::Discarded(Opcode::Send);
    assert_eq!(
        bench.delivered,
        [
            Delivery::Srq(srq(5)),
            discarded.clone(),
            Delivery::Srq(srq(6)),
            discarded
        ]
    );
}
