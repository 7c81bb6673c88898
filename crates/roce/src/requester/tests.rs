//! The requester alone: states and events, impossible answers, and the limits on what is outstanding.

use core::time::Duration;

use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{Aeth, AtomicEth, Operation, Syndrome};
use verbena_wire::{Stag, To};

use super::responses::credit_limit;
use super::*;
use crate::tests::{settings, table};

const START: u32 = 0xff_fffa;

fn send(len: u32) -> Message {
    Message::Send {
        len,
        tail: Tail::Plain,
        solicited: false,
    }
}

fn read(len: u32) -> Message {
    Message::Read {
        va: To::new(0),
        rkey: Stag::new(1),
        len,
    }
}

fn requester() -> Requester {
    Requester::new(&settings(Service::Rc))
}

fn psn(at: u32) -> Psn {
    Psn::wrapping(START.wrapping_add(at))
}

fn drain(requester: &mut Requester) -> Vec<OutRequest> {
    std::iter::from_fn(|| requester.poll(Time::ZERO)).collect()
}

fn answer(at: u32, syndrome: Syndrome) -> Packet<'static> {
    let aeth = Aeth { syndrome, msn: 0 };
    Packet::new(Operation::Acknowledge(aeth), Qpn::wrapping(0x12), psn(at))
}

#[test]
fn states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next), @r"
    Flowing + Ack -> Flowing
    Flowing + SequenceNak -> Flowing
    Flowing + RnrNak -> Waiting
    Flowing + WaitOver -> Flowing
    Flowing + Failure -> Failed
    Waiting + Ack -> Waiting
    Waiting + SequenceNak -> Waiting
    Waiting + RnrNak -> Waiting
    Waiting + WaitOver -> Flowing
    Waiting + Failure -> Failed
    Failed + Ack -> Failed
    Failed + SequenceNak -> Failed
    Failed + RnrNak -> Failed
    Failed + WaitOver -> Failed
    Failed + Failure -> Failed
    ");
}

#[test]
fn answers_to_nothing_are_ignored() {
    let mut requester = requester();
    requester.begin(send(1000)).unwrap();
    let syndromes = [
        Syndrome::ACK,
        Syndrome::RnrNak(RnrTimer::DEFAULT),
        Syndrome::Nak(Nak::PsnSequence),
        Syndrome::Nak(Nak::RemoteAccess),
    ];
    // Nothing was sent yet; then only the first four packets are outstanding.
    for sent in [0, 4] {
        for at in [sent, sent + 1, 1 << 22, 1 << 23, (1 << 24) - 1] {
            for syndrome in syndromes {
                let step = requester.handle(&answer(at, syndrome), Time::ZERO);
                assert_eq!(step, ResponseStep::Ignored, "{at} {syndrome}");
            }
        }
        assert_eq!(requester.completed(), 0);
        drain(&mut requester);
    }
    // Requests are not for this side.
    let request = Packet::new(
        Operation::SendOnly(Service::Rc, Tail::Plain),
        Qpn::wrapping(0x12),
        psn(0),
    );
    assert_eq!(
        requester.handle(&request, Time::ZERO),
        ResponseStep::Ignored
    );
}

#[test]
fn sequence_nak_goes_back_to_its_packet() {
    let mut requester = requester();
    requester.begin(send(1000)).unwrap();
    assert_eq!(drain(&mut requester).len(), 4);
    let nak = answer(1, Syndrome::Nak(Nak::PsnSequence));
    assert_eq!(requester.handle(&nak, Time::ZERO), ResponseStep::Progress);
    let again = drain(&mut requester);
    let psns: Vec<_> = again.iter().map(|out| out.packet.psn).collect();
    assert_eq!(psns, [psn(1), psn(2), psn(3)]);
    assert_eq!((again[0].offset, again[0].len), (256, 256));
    assert_eq!(requester.counters().repeated, 3);
    // Without progress the retries are used up.
    for _ in 1..7 {
        assert_eq!(requester.handle(&nak, Time::ZERO), ResponseStep::Progress);
    }
    let failed = ResponseStep::Failed(Failure::RetryExceeded);
    assert_eq!(requester.handle(&nak, Time::ZERO), failed);
}

/// A peer that answers, even without a receive, is there: losses before its answer do not count any more.
#[test]
fn losses_between_rnr_naks_do_not_add_up() {
    let mut requester = requester();
    requester.begin(send(1)).unwrap();
    let rnr = answer(0, Syndrome::RnrNak(RnrTimer::DEFAULT));
    let lost = answer(0, Syndrome::Nak(Nak::PsnSequence));
    drain(&mut requester);
    for _ in 0..10 {
        for answer in [lost, lost, lost, rnr] {
            let step = requester.handle(&answer, Time::ZERO);
            assert_eq!(step, ResponseStep::Progress);
        }
        let end = requester.deadline().unwrap();
        assert_eq!(requester.handle_timeout(end), ResponseStep::Progress);
        drain(&mut requester);
    }
    assert_eq!(requester.state(), State::Flowing);
}

#[test]
fn receiver_not_ready_is_tried_again() {
    let limited = Settings {
        rnr_retry: 1,
        ..settings(Service::Rc)
    };
    let mut requester = Requester::new(&limited);
    requester.begin(send(1)).unwrap();
    let rnr = answer(0, Syndrome::RnrNak(RnrTimer::DEFAULT));
    drain(&mut requester);
    assert_eq!(requester.handle(&rnr, Time::ZERO), ResponseStep::Progress);
    assert_eq!(drain(&mut requester), [], "it waits");
    assert_eq!(requester.handle(&rnr, Time::ZERO), ResponseStep::Ignored);
    let end = requester.deadline().unwrap();
    assert_eq!(end.since(Time::ZERO), Duration::from_micros(640));
    requester.handle_timeout(end);
    assert_eq!(drain(&mut requester).len(), 1);
    let failed = ResponseStep::Failed(Failure::RnrRetryExceeded);
    assert_eq!(requester.handle(&rnr, end), failed);
}

/// A packet that is repeated by the network finds no receive the first time and one the second.
#[test]
fn acknowledgement_within_the_wait_ends_the_request() {
    let mut requester = requester();
    requester.begin(send(0)).unwrap();
    drain(&mut requester);
    let rnr = answer(0, Syndrome::RnrNak(RnrTimer::DEFAULT));
    requester.handle(&rnr, Time::ZERO);
    requester.handle(&answer(0, Syndrome::ACK), Time::ZERO);
    assert_eq!(requester.completed(), 1);
    let end = requester.deadline().unwrap();
    assert_eq!(requester.handle_timeout(end), ResponseStep::Progress);
    assert_eq!(requester.deadline(), None, "nothing is outstanding");
    requester.begin(send(1)).unwrap();
    assert_eq!(drain(&mut requester).len(), 1);
}

#[test]
fn refusals_fail_the_oldest_request() {
    for nak in [
        Nak::InvalidRequest,
        Nak::RemoteAccess,
        Nak::RemoteOperational,
    ] {
        let mut requester = requester();
        requester.begin(send(1)).unwrap();
        requester.begin(send(1)).unwrap();
        drain(&mut requester);
        let step = requester.handle(&answer(1, Syndrome::Nak(nak)), Time::ZERO);
        assert_eq!(step, ResponseStep::Failed(Failure::Nak(nak)));
        assert_eq!(requester.completed(), 1, "the one before it was executed");
    }
}

#[test]
fn wrong_read_responses_are_ignored() {
    let mut requester = requester();
    requester.begin(read(300)).unwrap();
    drain(&mut requester);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    };
    let response = |at, operation, payload| Packet {
        payload,
        ..Packet::new(operation, Qpn::wrapping(0x12), psn(at))
    };
    let (first, last) = (
        Operation::ReadResponseFirst(aeth),
        Operation::ReadResponseLast(aeth),
    );
    for wrong in [
        response(0, first, &[0; 255]),
        response(0, first, &[0; 257]),
        response(0, last, &[0; 256]),
        response(0, Operation::ReadResponseOnly(aeth), &[0; 256]),
        response(0, Operation::AtomicAcknowledge(aeth, 1), &[]),
    ] {
        let step = requester.handle(&wrong, Time::ZERO);
        assert_eq!(step, ResponseStep::Ignored, "{wrong}");
    }
    let sink = |offset, is_last| ResponseStep::Sink {
        request: 0,
        offset,
        is_last,
    };
    let good = response(0, first, &[0; 256]);
    assert_eq!(requester.handle(&good, Time::ZERO), sink(0, false));
    assert_eq!(requester.handle(&good, Time::ZERO), ResponseStep::Ignored);
    let long = response(1, last, &[0; 45]);
    assert_eq!(requester.handle(&long, Time::ZERO), ResponseStep::Ignored);
    let end = response(1, last, &[0; 44]);
    assert_eq!(requester.handle(&end, Time::ZERO), sink(256, true));
    assert_eq!(requester.completed(), 1);
}

#[test]
fn lost_response_is_requested_from_its_place() {
    let mut requester = requester();
    requester.begin(read(700)).unwrap();
    requester.begin(send(1)).unwrap();
    drain(&mut requester);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    };
    let first = Packet {
        payload: &[0; 256],
        ..Packet::new(
            Operation::ReadResponseFirst(aeth),
            Qpn::wrapping(0x12),
            psn(0),
        )
    };
    requester.handle(&first, Time::ZERO);
    // The acknowledgement of the Send behind it arrives; twice goes back once.
    for _ in 0..2 {
        let step = requester.handle(&answer(3, Syndrome::ACK), Time::ZERO);
        assert_eq!(step, ResponseStep::Progress);
    }
    let again = drain(&mut requester);
    let Operation::ReadRequest(reth) = again[0].packet.operation else {
        panic!("{again:?}");
    };
    assert_eq!((reth.va.get(), reth.len), (256, 444));
    assert_eq!(again[0].packet.psn, psn(1));
    assert_eq!(again.len(), 2, "and the Send");
}

#[test]
fn reads_are_limited_by_the_depth() {
    let mut requester = requester();
    let atomic = AtomicEth {
        va: To::new(0),
        rkey: Stag::new(1),
        swap_or_add: 1,
        compare: 0,
    };
    for message in [read(1), Message::FetchAdd(atomic), read(1), send(1)] {
        requester.begin(message).unwrap();
    }
    assert_eq!(drain(&mut requester).len(), 2);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    };
    let only = Packet {
        payload: &[7],
        ..Packet::new(
            Operation::ReadResponseOnly(aeth),
            Qpn::wrapping(0x12),
            psn(0),
        )
    };
    requester.handle(&only, Time::ZERO);
    // The third Read, and the Send behind it.
    assert_eq!(drain(&mut requester).len(), 2);
}

#[test]
fn requests_that_the_service_lacks_are_refused() {
    let mut unreliable = Requester::new(&settings(Service::Uc));
    assert_eq!(unreliable.begin(read(1)), Err(BeginError::Unsupported));
    let invalidate = Message::Send {
        len: 1,
        tail: Tail::Invalidate(Stag::new(1)),
        solicited: false,
    };
    assert_eq!(unreliable.begin(invalidate), Err(BeginError::Unsupported));
    let none = Settings {
        initiator_depth: 0,
        ..settings(Service::Rc)
    };
    let mut requester = Requester::new(&none);
    assert_eq!(requester.begin(read(1)), Err(BeginError::Unsupported));
    assert_eq!(requester.begin(send(u32::MAX)), Err(BeginError::TooLong));
    assert_eq!(requester.begin(send(MAX_OUTSTANDING * 256)), Ok(0));
    assert_eq!(requester.begin(send(1)), Err(BeginError::Full));
}

#[test]
fn window_limits_unacknowledged_packets() {
    let mut requester = requester();
    requester.begin(send(256 * 1000)).unwrap();
    let sent = drain(&mut requester);
    assert_eq!(sent.len(), 64);
    assert!(sent[63].packet.ack_request, "the window is full");
    requester.handle(&answer(63, Syndrome::ACK), Time::ZERO);
    assert_eq!(drain(&mut requester).len(), 128, "it has doubled");
    requester.handle_congestion();
    requester.handle(&answer(127, Syndrome::ACK), Time::ZERO);
    assert!(drain(&mut requester).len() < 64, "it has shrunk");
}

#[test]
fn credits_limit_messages_that_need_receives() {
    let mut requester = requester();
    for _ in 0..5 {
        requester.begin(send(1)).unwrap();
    }
    requester.poll(Time::ZERO).unwrap();
    // One message completed, and receives for two more.
    let aeth = Aeth {
        syndrome: Syndrome::Ack { credits: 2 },
        msn: 1,
    };
    let ack = Packet::new(Operation::Acknowledge(aeth), Qpn::wrapping(0x12), psn(0));
    requester.handle(&ack, Time::ZERO);
    assert_eq!(drain(&mut requester).len(), 2);
    assert_eq!(credit_limit(5, 10), Some(16));
    assert_eq!(credit_limit(30, 0), Some(32_768));
    assert_eq!(credit_limit(31, 0), None);
}

/// Without the program's timeout, packets to a silent peer are repeated for ever, but ever more rarely.
#[test]
fn repetitions_to_a_silent_peer_become_rare() {
    let mut requester = Requester::new(&Settings {
        timeout: None,
        ..settings(Service::Rc)
    });
    requester.begin(send(10)).unwrap();
    drain(&mut requester);
    let mut now = Time::ZERO;
    for _ in 0..100 {
        let next = requester.deadline().expect("a repetition");
        assert!(next > now, "the deadline is not in the past");
        now = next;
        assert_eq!(requester.handle_timeout(now), ResponseStep::Progress);
        assert_eq!(drain(&mut requester).len(), 1);
    }
    assert!(now > Time::ZERO + Duration::from_secs(100));
}

#[test]
fn keep_alive_repeats_the_last_number_while_idle() {
    let mut requester = requester();
    let packet = requester.keep_alive().unwrap();
    assert_eq!((packet.psn, packet.ack_request), (psn(0).previous(), true));
    assert!(matches!(
        packet.operation,
        Operation::WriteOnly(Service::Rc, Reth { len: 0, .. }, None)
    ));
    // Its acknowledgement, before and after a request.
    let before = Packet {
        psn: packet.psn,
        ..answer(0, Syndrome::ACK)
    };
    assert_eq!(requester.handle(&before, Time::ZERO), ResponseStep::Ignored);
    requester.begin(send(1)).unwrap();
    assert_eq!(requester.keep_alive(), None, "a request is outstanding");
    drain(&mut requester);
    assert_eq!(requester.handle(&before, Time::ZERO), ResponseStep::Ignored);
    let acked = requester.handle(&answer(0, Syndrome::ACK), Time::ZERO);
    assert_eq!(acked, ResponseStep::Progress);
    assert_eq!(
        requester.keep_alive().map(|packet| packet.psn),
        Some(psn(0))
    );
}

#[test]
fn unreliable_requester_sends_no_keep_alive() {
    let requester = Requester::new(&settings(Service::Uc));
    assert_eq!(requester.keep_alive(), None);
}
