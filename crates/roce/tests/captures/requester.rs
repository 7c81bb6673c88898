//! Our requester in the place of rxe's: it sends the packets that rxe sent, and completes each request with the answers that rxe got, also
//! where packets were lost.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_roce::{Failure, Message, Mtu, Requester, ResponseStep, Settings};
use verbena_stream::Time;
use verbena_wire::roce::{Immediate, Nak, Operation, Psn, Qpn, Reth, Service};

use crate::capture::{CLIENT, Captured, Conversation, SERVER, conversations};

/// The messages of one side with their first packet sequence numbers, each once, and the operation of every packet.
fn messages(packets: &[&Captured]) -> (Vec<(Psn, Message)>, BTreeMap<u32, u8>) {
    let (mut messages, mut opcodes) = (Vec::new(), BTreeMap::new());
    let mut next: Option<Psn> = None;
    // A Send of several packets: its first number and its length so far.
    let mut send: Option<(Psn, u32)> = None;
    for captured in packets {
        let packet = captured.packet();
        if next.is_some_and(|next| packet.psn != next) {
            // A repetition.
            continue;
        }
        let (psn, len) = (packet.psn, packet.payload.len() as u32);
        opcodes.insert(psn.get(), packet.operation.opcode());
        let mut psns = 1;
        let solicited = packet.solicited;
        match packet.operation {
            Operation::SendFirst(_) => send = Some((psn, len)),
            Operation::SendMiddle(_) => send = send.map(|(first, before)| (first, before + len)),
            Operation::SendLast(_, tail) => {
                let (first, before) = send.take().unwrap();
                let len = before + len;
                messages.push((
                    first,
                    Message::Send {
                        len,
                        tail,
                        solicited,
                    },
                ));
            }
            Operation::SendOnly(_, tail) => {
                messages.push((
                    psn,
                    Message::Send {
                        len,
                        tail,
                        solicited,
                    },
                ));
            }
            Operation::WriteFirst(_, reth) => messages.push((psn, write(reth, None, solicited))),
            Operation::WriteOnly(_, reth, immediate) => {
                messages.push((psn, write(reth, immediate, solicited)));
            }
            Operation::ReadRequest(reth) => {
                let (va, rkey, len) = (reth.va, reth.rkey, reth.len);
                psns = Mtu::B1024.packets(len);
                messages.push((psn, Message::Read { va, rkey, len }));
            }
            Operation::CmpSwap(atomic) => messages.push((psn, Message::CmpSwap(atomic))),
            Operation::FetchAdd(atomic) => messages.push((psn, Message::FetchAdd(atomic))),
            _ => {}
        }
        next = Some(psn.plus(psns));
    }
    (messages, opcodes)
}

fn write(reth: Reth, immediate: Option<Immediate>, solicited: bool) -> Message {
    Message::Write {
        va: reth.va,
        rkey: reth.rkey,
        len: reth.len,
        immediate,
        solicited,
    }
}

/// Replays one side of a connection; returns the requests that completed, and why the next one failed.
fn replay(conversation: &Conversation, from: std::net::Ipv4Addr) -> (u64, Option<Failure>) {
    let requests: Vec<&Captured> = conversation
        .packets
        .iter()
        .filter(|one| one.from == from && !one.packet().operation.is_response())
        .collect();
    let (messages, opcodes) = messages(&requests);
    let Some(&(first, _)) = messages.first() else {
        return (0, None);
    };
    let rnr_retry = conversation.rnr_retry.get(&from).copied();
    let mut requester = Requester::new(&Settings {
        service: Service::Rc,
        mtu: Mtu::B1024,
        dest_qpn: Qpn::wrapping(0x11),
        send_psn: first,
        receive_psn: Psn::default(),
        initiator_depth: 128,
        responder_resources: 16,
        timeout: Some(Duration::from_secs(100)),
        retry_count: 7,
        // The answers were given to a requester without a window.
        is_lossy: false,
        rnr_retry: rnr_retry.unwrap_or(7),
    });
    let mut waiting = messages.iter().peekable();
    let mut now = Time::ZERO;
    for captured in &conversation.packets {
        let packet = captured.packet();
        now = now + Duration::from_micros(10);
        if captured.from == from && !packet.operation.is_response() {
            while let Some((_, message)) = waiting.next_if(|(psn, _)| !packet.psn.is_before(*psn)) {
                requester.begin(*message).unwrap();
            }
        } else if captured.from != from && packet.operation.is_response() {
            let step = requester.handle(&packet, now);
            if let ResponseStep::Failed(failure) = step {
                return (requester.completed(), Some(failure));
            }
        }
        while let Some(out) = requester.poll(now) {
            let sent = out.packet;
            if let Some(&opcode) = opcodes.get(&sent.psn.get()) {
                assert_eq!(sent.operation.opcode(), opcode, "{sent}");
            } else {
                // The rest of a Read whose response was lost in part.
                assert!(
                    matches!(sent.operation, Operation::ReadRequest(_)),
                    "{sent}"
                );
            }
        }
    }
    assert_eq!(
        requester.completed(),
        messages.len() as u64,
        "{requester:?}"
    );
    (requester.completed(), None)
}

#[test]
fn requests_complete_with_answers_of_rxe() {
    for (name, least) in [
        ("40_rxe_cm_rping", 10),
        ("41_rxe_ops", 10),
        ("44_rxe_loss", 10),
        ("46_rxe_perftest", 10),
    ] {
        let all = conversations(name);
        let completed: u64 = all
            .iter()
            .flat_map(|one| [CLIENT, SERVER].map(|from| replay(one, from)))
            .map(|(completed, failure)| {
                assert_eq!(failure, None, "{name}");
                completed
            })
            .sum();
        assert!(completed >= least, "{name}: {completed}");
    }
}

/// A wrong key of a Write, of a Read, and a region without the right to be read; no receive, and one that is too short.
#[test]
fn requests_fail_with_the_errors_of_rxe() {
    let failures: Vec<_> = conversations("42_rxe_errors")
        .iter()
        .map(|one| replay(one, CLIENT))
        .collect();
    let access = (0, Some(Failure::Nak(Nak::RemoteAccess)));
    let no_receive = (0, Some(Failure::RnrRetryExceeded));
    let too_short = (0, Some(Failure::Nak(Nak::RemoteOperational)));
    assert_eq!(failures, [access, access, access, no_receive, too_short]);
}
