//! Our responder in the place of rxe's: each answer of rxe is one that ours gives at that moment.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use verbena_roce::{Mtu, Refusal, RequestStep, Responder, Settings};
use verbena_wire::roce::{Aeth, Nak, Operation, Packet, Psn, Qpn, Service, Syndrome, Tail};

use crate::capture::{Captured, conversations};

fn settings(receive_psn: Psn) -> Settings {
    Settings {
        service: Service::Rc,
        mtu: Mtu::B1024,
        dest_qpn: Qpn::wrapping(0x11),
        send_psn: Psn::default(),
        receive_psn,
        initiator_depth: 16,
        responder_resources: 128,
        timeout: Some(Duration::from_secs(1)),
        retry_count: 7,
        is_lossy: true,
        rnr_retry: 7,
    }
}

/// What rxe answered to this request, if it refused.
fn refusal(later: &[Captured], to: Ipv4Addr, psn: Psn) -> Option<Refusal> {
    let answers = later.iter().filter(|one| one.from == to);
    let answer = answers
        .map(Captured::packet)
        .find(|packet| packet.operation.is_response() && packet.psn == psn)?;
    match answer.operation {
        Operation::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::RnrNak(timer) => Some(Refusal::NotReady(timer)),
            // It names a packet that had not arrived.
            Syndrome::Nak(Nak::PsnSequence) => None,
            Syndrome::Nak(nak) => Some(Refusal::Nak(nak)),
            Syndrome::Ack { .. } => None,
        },
        _ => None,
    }
}

/// The first packet of a Read's response that is repeated from the middle on: rxe continues the first response, ours begins one.
fn like_rxe(operation: Operation, continues: bool) -> Operation {
    match operation {
        Operation::ReadResponseFirst(_) if continues => Operation::ReadResponseMiddle,
        Operation::ReadResponseOnly(aeth) if continues => Operation::ReadResponseLast(aeth),
        other => other,
    }
}

/// The opcode, number and header of an answer, and the length of its payload.
fn summary(packet: &Packet<'_>, len: usize, counts: bool) -> String {
    let operation = match packet.operation {
        // The value of the word is not known here.
        Operation::AtomicAcknowledge(aeth, _) => Operation::AtomicAcknowledge(aeth, 0),
        // rxe does not count a Send with Invalidate.
        Operation::Acknowledge(aeth) if !counts => Operation::Acknowledge(Aeth { msn: 0, ..aeth }),
        other => other,
    };
    format!("{operation:?} {} {len}", packet.psn)
}

/// What a replay has compared.
#[derive(Debug, Default)]
struct Compared {
    answers: usize,
    /// Answers of ours that rxe gave as well, and that were lost before the capture.
    lost: usize,
    /// NAKs for missing packets.
    gaps: usize,
    /// Packets that had been executed before.
    repeated: u64,
}

/// Replays a capture; `loses` says whether answers were lost on their way to it.
fn replay(name: &str, loses: bool) -> Compared {
    let mut compared = Compared::default();
    for conversation in conversations(name) {
        let mut sides: HashMap<Ipv4Addr, Responder> = HashMap::new();
        let mut counts = true;
        for (at, captured) in conversation.packets.iter().enumerate() {
            let packet = captured.packet();
            if packet.operation.is_response() {
                let Some(responder) = sides.get_mut(&captured.from) else {
                    continue;
                };
                let theirs = summary(&packet, packet.payload.len(), counts);
                loop {
                    let Some(mut ours) = responder.poll() else {
                        panic!("{name}: rxe answers {theirs}, number {at}");
                    };
                    let continues = ours.source.is_some_and(|part| part.offset > 0);
                    ours.packet.operation = like_rxe(ours.packet.operation, continues);
                    let len = ours.source.map_or(0, |part| part.memory.len as usize);
                    let ours = summary(&ours.packet, len, counts);
                    if ours == theirs {
                        break;
                    }
                    assert!(loses, "{name}: {ours} instead of {theirs}, number {at}");
                    compared.lost += 1;
                }
                compared.answers += 1;
                if let Operation::Acknowledge(aeth) = packet.operation {
                    let is_gap = aeth.syndrome == Syndrome::Nak(Nak::PsnSequence);
                    compared.gaps += usize::from(is_gap);
                }
                continue;
            }
            if let Operation::SendOnly(_, Tail::Invalidate(_)) = packet.operation {
                counts = false;
            }
            let others = conversation.packets[at + 1..].iter();
            let to = others
                .map(|one| one.from)
                .find(|from| *from != captured.from);
            let Some(to) = to else { continue };
            let first = conversation.first[&captured.from];
            let responder = sides
                .entry(to)
                .or_insert_with(|| Responder::new(&settings(first)));
            let step = responder.handle(&packet);
            let refused = refusal(&conversation.packets[at + 1..], to, packet.psn);
            match (step, refused) {
                (RequestStep::Nothing, _) => {}
                (RequestStep::Violation(violation), _) => panic!("{name}: {packet}: {violation}"),
                (_, Some(refusal)) => responder.refuse(refusal),
                (RequestStep::Atomic(_), None) => responder.accept_atomic(0),
                (_, None) => responder.accept(),
            }
        }
        for responder in sides.values() {
            compared.repeated += responder.counters().repeated;
        }
    }
    compared
}

#[test]
fn answers_are_those_of_rxe() {
    for (name, least) in [
        ("40_rxe_cm_rping", 50),
        ("41_rxe_ops", 21),
        ("42_rxe_errors", 5),
        ("46_rxe_perftest", 30),
    ] {
        let compared = replay(name, false);
        assert!(compared.answers >= least, "{name}: {compared:?}");
    }
}

/// Captured behind the loss of both directions: it has what arrived, and the answers that were lost are missing.
#[test]
fn answers_to_lossy_requests_are_those_of_rxe() {
    let compared = replay("44_rxe_loss", true);
    assert_eq!((compared.answers, compared.gaps), (376, 5), "{compared:?}");
    assert!((1..40).contains(&compared.lost), "{compared:?}");
    assert_eq!(compared.repeated, 10, "{compared:?}");
}
