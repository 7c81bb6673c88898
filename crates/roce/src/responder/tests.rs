//! The responder alone: states and events, every violation, repetitions, and how much it queues for a peer that repeats itself.

use super::*;
use crate::tests::{settings, table};

const START: u32 = 0xff_fffa;
const RKEY: Stag = Stag::new(0x77);

fn responder(service: Service) -> Responder {
    Responder::new(&settings(service))
}

fn psn(at: u32) -> Psn {
    Psn::wrapping(START.wrapping_add(at))
}

fn packet(at: u32, operation: Operation, payload: &[u8]) -> Packet<'_> {
    Packet {
        payload,
        ack_request: true,
        ..Packet::new(operation, Qpn::wrapping(0x11), psn(at))
    }
}

fn reth(len: u32) -> Reth {
    Reth {
        va: To::new(0x1000),
        rkey: RKEY,
        len,
    }
}

fn answers(responder: &mut Responder) -> Vec<(u8, Psn, Option<Syndrome>)> {
    std::iter::from_fn(|| responder.poll())
        .map(|out| {
            let operation = out.packet.operation;
            let syndrome = operation.aeth().map(|aeth| aeth.syndrome);
            (operation.opcode(), out.packet.psn, syndrome)
        })
        .collect()
}

/// Operations and payload of consecutive packets.
type Packets<'a> = &'a [(Operation, &'a [u8])];

const SEND: Operation = Operation::SendOnly(Service::Rc, Tail::Plain);
const FIRST: Operation = Operation::SendFirst(Service::Rc);
const MIDDLE: Operation = Operation::SendMiddle(Service::Rc);
const LAST: Operation = Operation::SendLast(Service::Rc, Tail::Plain);

#[test]
fn states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next), @r"
    Expecting + Executed -> Expecting
    Expecting + Refused -> Refused
    Expecting + Failure -> Failed
    Expecting + Close -> Closed
    Refused + Executed -> Expecting
    Refused + Refused -> Refused
    Refused + Failure -> Failed
    Refused + Close -> Closed
    Failed + Executed -> Failed
    Failed + Refused -> Failed
    Failed + Failure -> Failed
    Failed + Close -> Failed
    Closed + Executed -> Closed
    Closed + Refused -> Closed
    Closed + Failure -> Closed
    Closed + Close -> Closed
    ");
}

#[test]
fn violations_are_answered_with_invalid_request() {
    let write = |len| Operation::WriteFirst(Service::Rc, reth(len));
    let write_only = |len| Operation::WriteOnly(Service::Rc, reth(len), None);
    let atomic = |va| {
        Operation::FetchAdd(AtomicEth {
            va: To::new(va),
            rkey: RKEY,
            swap_or_add: 1,
            compare: 0,
        })
    };
    let whole: &[u8] = &[0; 256];
    let rows: [(Packets<'_>, Violation); 17] = [
        (&[(MIDDLE, whole)], Violation::OpcodeSequence),
        (&[(LAST, b"x")], Violation::OpcodeSequence),
        (&[(FIRST, whole), (FIRST, whole)], Violation::OpcodeSequence),
        (&[(FIRST, whole), (SEND, b"")], Violation::OpcodeSequence),
        (
            &[(FIRST, whole), (Operation::WriteMiddle(Service::Rc), whole)],
            Violation::OpcodeSequence,
        ),
        (
            &[(FIRST, whole), (Operation::ReadRequest(reth(1)), b"")],
            Violation::OpcodeSequence,
        ),
        (&[(FIRST, &whole[..255])], Violation::PacketLength),
        (&[(FIRST, whole), (MIDDLE, b"x")], Violation::PacketLength),
        (&[(FIRST, whole), (LAST, b"")], Violation::PacketLength),
        (&[(SEND, &[0; 257])], Violation::PacketLength),
        (&[(write(256), whole)], Violation::MessageLength),
        (&[(write(MAX_MESSAGE + 1), whole)], Violation::MessageLength),
        (&[(write_only(3), b"four")], Violation::MessageLength),
        (
            &[
                (write(300), whole),
                (Operation::WriteLast(Service::Rc, None), &whole[..45]),
            ],
            Violation::MessageLength,
        ),
        (
            &[(Operation::ReadRequest(reth(1)), b"x")],
            Violation::PacketLength,
        ),
        (&[(atomic(4), b"")], Violation::Alignment),
        (
            &[
                (Operation::ReadRequest(reth(1)), b""),
                (Operation::ReadRequest(reth(1)), b""),
                (Operation::ReadRequest(reth(1)), b""),
            ],
            Violation::TooManyReads,
        ),
    ];
    for (row, (packets, violation)) in rows.into_iter().enumerate() {
        let mut responder = responder(Service::Rc);
        let (bad, good) = packets.split_last().unwrap();
        for (at, (operation, payload)) in good.iter().enumerate() {
            let step = responder.handle(&packet(at as u32, *operation, payload));
            assert!(
                !matches!(step, RequestStep::Violation(_)),
                "{row}: {step:?}"
            );
            responder.accept();
        }
        let at = good.len() as u32;
        let step = responder.handle(&packet(at, bad.0, bad.1));
        assert_eq!(step, RequestStep::Violation(violation), "{row}");
        let nak = Some(Syndrome::Nak(Nak::InvalidRequest));
        assert_eq!(answers(&mut responder).last(), Some(&(0x11, psn(at), nak)));
        // Nothing is executed any more.
        let step = responder.handle(&packet(at, SEND, b""));
        assert_eq!(step, RequestStep::Nothing);
    }
}

#[test]
fn a_gap_is_reported_once() {
    let mut responder = responder(Service::Rc);
    for at in [1, 2, 3] {
        assert_eq!(
            responder.handle(&packet(at, SEND, b"")),
            RequestStep::Nothing
        );
    }
    let nak = Some(Syndrome::Nak(Nak::PsnSequence));
    assert_eq!(answers(&mut responder), [(0x11, psn(0), nak)]);
    responder.handle(&packet(0, SEND, b""));
    responder.accept();
    let ack = Some(Syndrome::ACK);
    assert_eq!(answers(&mut responder), [(0x11, psn(0), ack)]);
    // The next gap is reported again.
    responder.handle(&packet(2, SEND, b""));
    assert_eq!(answers(&mut responder), [(0x11, psn(1), nak)]);
    assert_eq!(responder.counters().out_of_order, 4);
}

#[test]
fn repeated_packets_are_acknowledged_and_not_executed() {
    let mut responder = responder(Service::Rc);
    for at in 0..3 {
        responder.handle(&packet(at, SEND, b"x"));
        responder.accept();
    }
    answers(&mut responder);
    for _ in 0..1000 {
        assert_eq!(
            responder.handle(&packet(0, SEND, b"x")),
            RequestStep::Nothing
        );
        responder.accept();
    }
    assert_eq!(
        answers(&mut responder),
        [(0x11, psn(2), Some(Syndrome::ACK))]
    );
    assert_eq!(responder.expected_psn(), psn(3));
}

#[test]
fn repeated_reads_and_atomics_are_answered_again() {
    let mut responder = responder(Service::Rc);
    let read = Operation::ReadRequest(reth(600));
    let atomic = Operation::FetchAdd(AtomicEth {
        va: To::new(8),
        rkey: RKEY,
        swap_or_add: 1,
        compare: 0,
    });
    responder.handle(&packet(0, read, b""));
    responder.accept();
    responder.handle(&packet(3, atomic, b""));
    responder.accept_atomic(41);
    let first: Vec<_> = std::iter::from_fn(|| responder.poll()).collect();
    assert_eq!(first.len(), 4);
    // Many repetitions are one response each; from its second packet on, and with the value of the first time.
    let rest = Operation::ReadRequest(Reth {
        va: To::new(0x1100),
        ..reth(344)
    });
    for _ in 0..1000 {
        responder.handle(&packet(1, rest, b""));
        responder.handle(&packet(3, atomic, b""));
    }
    let again: Vec<_> = std::iter::from_fn(|| responder.poll()).collect();
    let psns: Vec<_> = again.iter().map(|out| out.packet.psn).collect();
    assert!(psns.len() <= 3 && psns.contains(&psn(1)) && psns.contains(&psn(3)));
    let value = again.iter().find_map(|out| match out.packet.operation {
        Operation::AtomicAcknowledge(_, original) => Some(original),
        _ => None,
    });
    assert_eq!(value, Some(41));
    // A repetition that asks for other memory is not answered.
    for other in [
        Reth {
            rkey: Stag::new(1),
            ..reth(600)
        },
        Reth {
            va: To::new(0x1001),
            ..reth(599)
        },
        reth(601),
    ] {
        responder.handle(&packet(0, Operation::ReadRequest(other), b""));
        assert!(!responder.has_response(), "{other}");
    }
}

#[test]
fn receiver_not_ready_repeats_the_packet() {
    let mut responder = responder(Service::Rc);
    responder.handle(&packet(0, SEND, b"x"));
    responder.refuse(Refusal::NotReady(RnrTimer::DEFAULT));
    // The packets behind it are dropped without a NAK.
    responder.handle(&packet(1, SEND, b"y"));
    let rnr = Some(Syndrome::RnrNak(RnrTimer::DEFAULT));
    assert_eq!(answers(&mut responder), [(0x11, psn(0), rnr)]);
    assert!(matches!(
        responder.handle(&packet(0, SEND, b"x")),
        RequestStep::Receive { .. }
    ));
}

#[test]
fn unreliable_messages_with_gaps_are_dropped() {
    let mut responder = responder(Service::Uc);
    let first = Operation::SendFirst(Service::Uc);
    let last = Operation::SendLast(Service::Uc, Tail::Plain);
    let only = Operation::SendOnly(Service::Uc, Tail::Plain);
    responder.handle(&packet(0, first, &[0; 256]));
    responder.accept();
    // A packet is missing.
    assert_eq!(
        responder.handle(&packet(2, last, b"x")),
        RequestStep::Nothing
    );
    responder.accept();
    let step = responder.handle(&packet(3, only, b"x"));
    assert!(matches!(step, RequestStep::Receive { is_first: true, .. }));
    responder.accept();
    assert!(!responder.has_response());
    assert_eq!(responder.counters().dropped, 1);
    // Requests of the other service are not executed.
    assert_eq!(
        responder.handle(&packet(4, SEND, b"")),
        RequestStep::Nothing
    );
}

/// A network that is not InfiniBand repeats and reorders packets; messages arrive once and in order nevertheless.
#[test]
fn late_packets_of_unreliable_messages_are_dropped() {
    let mut responder = responder(Service::Uc);
    let only = Operation::SendOnly(Service::Uc, Tail::Plain);
    for (at, is_executed) in [(0, true), (0, false), (2, true), (1, false), (3, true)] {
        let step = responder.handle(&packet(at, only, b"x"));
        let executes = matches!(step, RequestStep::Receive { is_first: true, .. });
        assert_eq!(executes, is_executed, "{at}");
        responder.accept();
    }
    assert_eq!(responder.counters().repeated, 2);
    // A packet far behind is of a peer that has lost more than that, or begins anew.
    let far = 4_u32.wrapping_sub(LATE + 1);
    let step = responder.handle(&packet(far, only, b"x"));
    assert!(matches!(step, RequestStep::Receive { .. }));
}

/// A peer whose responder was busy repeats its oldest Read, and all that it sent arrives at once.
#[test]
fn repeated_read_keeps_its_place_in_the_queue() {
    let mut responder = responder(Service::Rc);
    let read = Operation::ReadRequest(reth(600));
    for at in [0, 3] {
        responder.handle(&packet(at, read, b""));
        responder.accept();
    }
    responder.handle(&packet(0, read, b""));
    let sent = |responder: &mut Responder| {
        let packets = std::iter::from_fn(|| responder.poll());
        packets.map(|out| out.packet.psn).collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut responder), [0, 1, 2, 3, 4, 5].map(psn));

    // What had left before may be lost.
    for at in [6, 9] {
        responder.handle(&packet(at, read, b""));
        responder.accept();
    }
    assert_eq!(responder.poll().unwrap().packet.psn, psn(6));
    responder.handle(&packet(6, read, b""));
    assert_eq!(sent(&mut responder), [6, 7, 8, 9, 10, 11].map(psn));
}

/// The peer repeats its reads, gets the answers to the first time, and sends new ones before the repeated answers have left.
#[test]
fn repeated_answers_do_not_count_as_unanswered() {
    let mut responder = responder(Service::Rc);
    let read = Operation::ReadRequest(reth(1));
    for at in 0..2 {
        responder.handle(&packet(at, read, b""));
        responder.accept();
    }
    answers(&mut responder);
    for at in 0..2 {
        responder.handle(&packet(at, read, b""));
    }
    for at in 2..4 {
        let step = responder.handle(&packet(at, read, b""));
        assert_eq!(step, RequestStep::Read(reth(1)));
        responder.accept();
    }
    // What the peer no longer waits for is not sent.
    let psns: Vec<_> = answers(&mut responder).iter().map(|a| a.1).collect();
    assert_eq!(psns, [psn(2), psn(3)]);
}

#[test]
fn unreadable_memory_ends_the_response() {
    let mut responder = responder(Service::Rc);
    responder.handle(&packet(0, Operation::ReadRequest(reth(600)), b""));
    responder.accept();
    responder.poll().unwrap();
    let second = responder.poll().unwrap();
    responder.fail_read(second.packet.psn, Nak::RemoteAccess);
    let nak = Some(Syndrome::Nak(Nak::RemoteAccess));
    assert_eq!(answers(&mut responder), [(0x11, psn(1), nak)]);
    assert_eq!(responder.state(), State::Failed);
}

#[test]
fn closed_connection_answers_what_was_executed() {
    let mut responder = responder(Service::Rc);
    let read = Operation::ReadRequest(reth(600));
    let atomic = Operation::FetchAdd(AtomicEth {
        va: To::new(8),
        rkey: RKEY,
        swap_or_add: 1,
        compare: 0,
    });
    responder.handle(&packet(0, SEND, b"x"));
    responder.accept();
    responder.handle(&packet(1, atomic, b""));
    responder.accept_atomic(41);
    responder.handle(&packet(2, read, b""));
    responder.accept();
    responder.close();
    // What had no need of memory is still sent.
    let ack = Some(Syndrome::ACK);
    let sent = answers(&mut responder);
    assert_eq!(sent, [(0x11, psn(0), ack), (0x12, psn(1), ack)]);
    responder.handle(&packet(0, SEND, b"x"));
    responder.handle(&packet(1, atomic, b""));
    responder.handle(&packet(2, read, b""));
    let again = answers(&mut responder);
    assert_eq!(again, [(0x11, psn(4), ack), (0x12, psn(1), ack)]);
    // Nothing new is executed, and nothing missing is asked for.
    for at in [5, 6, 1000] {
        let step = responder.handle(&packet(at, SEND, b"x"));
        assert_eq!(step, RequestStep::Nothing);
    }
    assert!(!responder.has_response());
    assert_eq!(responder.state(), State::Closed);
}

/// The packet of a peer that asks whether this side is there ([`Requester::keep_alive`](crate::Requester::keep_alive)).
#[test]
fn keep_alive_is_acknowledged_and_changes_nothing() {
    let peer = crate::Requester::new(&settings(Service::Rc));
    let keep_alive = peer.keep_alive().unwrap();
    let mut responder = responder(Service::Rc);
    let acknowledge = |psn: Psn| (0x11, psn, Some(Syndrome::ACK));
    assert_eq!(responder.handle(&keep_alive), RequestStep::Nothing);
    assert_eq!(answers(&mut responder), [acknowledge(psn(0).previous())]);
    // In the middle of a message, and behind a Read.
    for operation in [FIRST, LAST] {
        let payload: &[u8] = if operation == FIRST { &[0; 256] } else { &[0] };
        let at = responder.expected_psn().minus(psn(0));
        responder.handle(&packet(at, operation, payload));
        responder.accept();
    }
    responder.handle(&packet(2, Operation::ReadRequest(reth(1)), &[]));
    responder.accept();
    answers(&mut responder);
    let keep_alive = Packet {
        psn: psn(2),
        ..keep_alive
    };
    assert_eq!(responder.handle(&keep_alive), RequestStep::Nothing);
    assert_eq!(answers(&mut responder), [acknowledge(psn(2))]);
    assert_eq!(responder.expected_psn(), psn(3));
}
