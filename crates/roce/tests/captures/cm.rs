//! Our connection manager in the place of rxe's, on both sides of every connection of the captures: it sends what rxe sent, and gets to the end
//! with rxe's answers.

use std::net::Ipv4Addr;

use verbena_roce::cm::{CmTimers, CommunicationId, Mad, Outcome, State};
use verbena_stream::Time;
use verbena_wire::roce::cm::CmMessage;

use crate::capture::{CLIENT, messages};

const NOW: Time = Time::from_nanos(1_000_000);

/// What is sent now has the contents of this message of rxe.
fn sends(id: &mut CommunicationId, theirs: &Mad) {
    let ours = id.poll().expect("a message, as rxe sends");
    let (ours, theirs) = (CmMessage::parse(&ours), CmMessage::parse(theirs));
    assert_eq!(ours.unwrap(), theirs.unwrap());
    assert!(id.poll().is_none());
}

/// Replays one side of all connections, in which one side connects, the other accepts, and the first one ends; returns their number.
fn replay(all: &[(Ipv4Addr, Mad)], ours: Ipv4Addr) -> usize {
    let (mut id, mut ended): (Option<CommunicationId>, _) = (None, 0);
    for (from, mad) in all {
        let (transaction, message) = CmMessage::parse(mad).unwrap();
        let is_ours = *from == ours;
        if let CmMessage::Req(req) = message {
            assert!(id.take().is_none_or(|id| id.state() == State::TimeWait));
            let timers = CmTimers::default();
            id = Some(match is_ours {
                true => CommunicationId::connect(&req, transaction, timers, NOW),
                false => {
                    // The identifier that rxe answered with.
                    let mut answers = all.iter().map(|(_, mad)| CmMessage::parse(mad).unwrap());
                    let local_id = answers.find_map(|(of, answer)| match answer {
                        CmMessage::Rep(rep) if of == transaction => Some(rep.local_id),
                        _ => None,
                    });
                    CommunicationId::listen(&req, transaction, local_id.unwrap(), timers)
                }
            });
            if !is_ours {
                continue;
            }
        }
        let id = id.as_mut().expect("a connection");
        if !is_ours {
            let outcome = id.handle(&message, transaction, NOW);
            let expected = match message {
                CmMessage::Rep(_) => matches!(outcome, Outcome::Accepted(_)),
                CmMessage::Rtu(_) => outcome == Outcome::Established,
                _ => outcome == Outcome::Disconnected,
            };
            assert!(expected, "{message:?}: {outcome:?}");
            ended += usize::from(outcome == Outcome::Disconnected);
            continue;
        }
        match message {
            CmMessage::Rep(rep) => assert!(id.accept(&rep, NOW)),
            CmMessage::Dreq(_) => assert!(id.disconnect(transaction, &[], NOW)),
            _ => {}
        }
        sends(id, mad);
    }
    ended
}

#[test]
fn connections_are_made_and_ended_as_by_rxe() {
    for (name, connections) in [
        ("40_rxe_cm_rping", 2),
        ("41_rxe_ops", 11),
        ("42_rxe_errors", 5),
        ("44_rxe_loss", 1),
    ] {
        let all = messages(name);
        let server = all.iter().map(|(from, _)| *from).find(|ip| *ip != CLIENT);
        for side in [CLIENT, server.unwrap()] {
            assert_eq!(replay(&all, side), connections, "{name} {side}");
        }
    }
}
