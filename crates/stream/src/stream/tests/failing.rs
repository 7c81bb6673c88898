//! A stream that fails with unanswered reads: what is sent before the Terminate, and when nothing is (docs/connections.md).

use verbena_wire::ddp::{Header, Tagged};
use verbena_wire::ext::{Control, ReadV2Request};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, DdpError, Opcode, RdmapError, ReadRequest,
};
use verbena_wire::{Rsn, Stag, To};

use super::flow::every_framing;
use crate::startup::{Role, Rtr};
use crate::stream::State;
use crate::testing::{Bench, agreement, control, fpdu, settings, tagged, untagged};
use crate::{
    AccessFault, BeginError, Claim, Delivery, Message, Offender, Outgoing, Step, Time, Violation,
};

const LEN: u32 = 2500;

fn request(size: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: Stag::new(7),
        sink_to: To::new(0x40),
        size,
        source_stag: Stag::new(2),
        source_to: To::new(0),
    }
}

fn read(msn: u32) -> Vec<u8> {
    fpdu(untagged(Opcode::ReadRequest, msn), &request(LEN).emit())
}

fn answer(len: u32) -> Message {
    let (stag, to) = (Stag::new(7), To::new(0x40));
    Message::ReadResponse { stag, to, len }
}

fn refusal() -> Violation {
    Violation::Access {
        opcode: Opcode::Write,
        stag: Stag::new(0xbad),
        fault: AccessFault::InvalidStag,
    }
}

/// The peer writes to an STag that it may not access: the stream fails before a byte is placed.
fn bad_write(bench: &mut Bench) {
    let bytes = fpdu(tagged(Opcode::Write, 0xbad, 0), b"no");
    let (_, step) = bench.stream.handle(&bytes, bench.now).unwrap();
    assert!(matches!(step, Step::Place(_)));
    bench.stream.fail(refusal());
    assert_eq!(bench.stream.state(), State::Failing);
    assert_eq!(
        bench.stream.handle(b"more", Time::ZERO),
        Ok((4, Step::More(1)))
    );
}

/// The names of the messages in plain frames.
fn frame_names(mut bytes: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    while let Some((len, _)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len));
        let header = Header::parse(&bytes[2..2 + len]).unwrap();
        words.push(match header {
            Header::Untagged(h) if h.opcode == Opcode::Control => {
                format!("{:?}", Control::parse(h.ulp, &[]).unwrap())
            }
            _ => header.opcode().name().to_owned(),
        });
        bytes = &bytes[(2 + len).next_multiple_of(4) + 4..];
    }
    words
}

fn ack(n: u32) -> String {
    format!("{:?}", Control::Ack(Rsn::wrapping(n)))
}

fn names(opcodes: &[Opcode]) -> Vec<String> {
    opcodes.iter().map(|o| o.name().to_owned()).collect()
}

/// One frame of a message.
fn frame(bench: &mut Bench, outgoing: &mut Outgoing) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = bench.stream.next_frame(outgoing).unwrap();
    frame.write(&mut out, |_, _| {});
    out
}

#[test]
fn earlier_reads_are_answered_before_terminate() {
    for extensions in [true, false] {
        let mut bench = if extensions {
            Bench::verbena()
        } else {
            Bench::standard()
        };
        bench.feed(&read(1)).unwrap();
        bad_write(&mut bench);
        assert!(bench.stream.owes_responses());
        assert!(bench.control(true).is_empty(), "the Terminate waits");
        let send = Message::Write {
            stag: Stag::new(1),
            to: To::new(0),
            len: 0,
        };
        assert_eq!(bench.stream.begin(send).unwrap_err(), BeginError::Closed);
        let out = bench.send(answer(LEN));
        assert_eq!(frame_names(&out), names(&[Opcode::ReadResponse; 3]));
        assert!(!bench.stream.owes_responses());
        assert_eq!(
            bench.stream.begin(answer(0)).unwrap_err(),
            BeginError::Closed
        );
        // The response acknowledges all before it; nothing is left to acknowledge.
        let last = bench.control(false);
        assert_eq!(frame_names(&last), names(&[Opcode::Terminate]));
        assert_eq!(bench.stream.state(), State::Terminated);
        assert_eq!(bench.stream.cause(), Some(&refusal()));
    }
}

#[test]
fn failing_stream_acknowledges_as_reads_complete() {
    let mut bench = Bench::verbena();
    let write = fpdu(tagged(Opcode::Write, 1, 0), b"ok");
    for bytes in [&write, &read(1), &write, &read(2), &write] {
        bench.feed(bytes).unwrap();
    }
    bad_write(&mut bench);
    let mut out = bench.control(false);
    assert_eq!(frame_names(&out), [ack(1)]);
    for _ in 0..2 {
        out.extend(bench.send(answer(1)));
        out.extend(bench.control(false));
    }
    let response = Opcode::ReadResponse.name().to_owned();
    let terminate = Opcode::Terminate.name().to_owned();
    let expected = [
        ack(1),
        response.clone(),
        ack(3),
        response,
        ack(5),
        terminate,
    ];
    assert_eq!(frame_names(&out), expected);
}

#[test]
fn owed_answers_are_sent_in_order() {
    let atomic = AtomicRequest {
        op: AtomicOp::FetchAdd { add: 1, mask: 0 },
        id: 9,
        stag: Stag::new(2),
        to: To::new(0),
    };
    let v2 = ReadV2Request {
        size: LEN,
        source_stag: Stag::new(2),
        source_to: To::new(0),
    };
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    let atomics = fpdu(untagged(Opcode::AtomicRequest, 2), &atomic.emit());
    bench.feed(&atomics).unwrap();
    let v2s = fpdu(untagged(Opcode::ReadV2Request, 3), &v2.emit());
    bench.feed(&v2s).unwrap();
    bench.feed(&read(4)).unwrap();
    // RFC 5040 §3.3.1: the fifth exceeds the limit, and is the request that ends the stream.
    let refused = bench.expect_violation(&read(5));
    assert_eq!(refused, Violation::TooManyReads { limit: 4 });
    let mut out = Vec::new();
    for message in [
        answer(LEN),
        Message::AtomicResponse(AtomicResponse { id: 9, original: 1 }),
        Message::ReadV2Response { len: 0 },
        answer(0),
    ] {
        assert!(bench.stream.owes_responses());
        out.extend(bench.control(true));
        out.extend(bench.send(message));
    }
    out.extend(bench.control(true));
    let expected = [
        Opcode::ReadResponse,
        Opcode::ReadResponse,
        Opcode::ReadResponse,
        Opcode::AtomicResponse,
        Opcode::ReadV2Response,
        Opcode::ReadResponse,
        Opcode::Terminate,
    ];
    assert_eq!(frame_names(&out), names(&expected));
}

#[test]
fn started_answer_is_finished_before_terminate() {
    // Begun and not framed, framed once, framed twice.
    for framed in 0..3 {
        let mut bench = Bench::verbena();
        bench.feed(&read(1)).unwrap();
        bench.feed(&read(2)).unwrap();
        let mut outgoing = bench.stream.begin(answer(LEN)).unwrap();
        for _ in 0..framed {
            frame(&mut bench, &mut outgoing);
        }
        bad_write(&mut bench);
        assert!(bench.control(true).is_empty());
        assert_eq!(bench.stream.begin(answer(0)).unwrap_err(), BeginError::Busy);
        for _ in framed..3 {
            assert!(bench.control(true).is_empty());
            frame(&mut bench, &mut outgoing);
        }
        assert!(outgoing.is_done() && bench.stream.owes_responses());
        bench.send(answer(0));
        assert_eq!(
            frame_names(&bench.control(true)),
            names(&[Opcode::Terminate])
        );
    }
}

#[test]
fn partly_sent_request_blocks_owed_answers() {
    let ours = Message::Write {
        stag: Stag::new(1),
        to: To::new(0),
        len: LEN,
    };
    let mut bench = Bench::verbena();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 0), b"ok"))
        .unwrap();
    bench.feed(&read(1)).unwrap();
    let mut outgoing = bench.stream.begin(ours.clone()).unwrap();
    frame(&mut bench, &mut outgoing);
    bad_write(&mut bench);
    assert!(!bench.stream.owes_responses());
    assert_eq!(
        bench.stream.begin(answer(LEN)).unwrap_err(),
        BeginError::Closed
    );
    assert!(bench.stream.next_frame(&mut outgoing).is_none());
    let terminate = Opcode::Terminate.name().to_owned();
    assert_eq!(frame_names(&bench.control(true)), [ack(1), terminate]);

    // A request of which no frame was made does not prevent them.
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    let mut outgoing = bench.stream.begin(ours).unwrap();
    bad_write(&mut bench);
    assert!(bench.stream.owes_responses());
    assert!(bench.stream.next_frame(&mut outgoing).is_none());
    bench.send(answer(LEN));
    assert_eq!(
        frame_names(&bench.control(true)),
        names(&[Opcode::Terminate])
    );
}

/// Answering the read that was delivered as `at` fails.
fn read_fails(bench: &mut Bench, at: usize, sent: u32) {
    let Delivery::ReadRequest {
        header, request, ..
    } = bench.delivered[at].clone()
    else {
        panic!("a read request");
    };
    let offender = Offender::of(&header.into(), 46, Some(request)).advanced(sent);
    let violation = Violation::Access {
        opcode: Opcode::ReadRequest,
        stag: request.source_stag,
        fault: AccessFault::Rights,
    };
    bench.stream.fail_for(violation, Some(offender));
}

#[test]
fn failed_answer_ends_the_stream_at_once() {
    // Before its first frame and after it; two reads wait behind it and are not answered.
    for framed in [0, 1] {
        let mut bench = Bench::verbena();
        for msn in 1..=4 {
            bench.feed(&read(msn)).unwrap();
        }
        bench.send(answer(LEN));
        let mut outgoing = bench.stream.begin(answer(LEN)).unwrap();
        for _ in 0..framed {
            frame(&mut bench, &mut outgoing);
        }
        read_fails(&mut bench, 1, outgoing.sent());
        assert!(!bench.stream.owes_responses());
        assert!(bench.stream.next_frame(&mut outgoing).is_none());
        assert_eq!(
            bench.stream.begin(answer(LEN)).unwrap_err(),
            BeginError::Closed
        );
        // No acknowledgement: the response before covers all that was executed, and the failed read is not.
        assert_eq!(
            frame_names(&bench.control(true)),
            names(&[Opcode::Terminate])
        );
    }
}

#[test]
fn later_failed_answer_is_named_in_terminate() {
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    bench.feed(&read(2)).unwrap();
    bad_write(&mut bench);
    bench.send(answer(LEN));
    read_fails(&mut bench, 1, 0);
    assert!(!bench.stream.owes_responses());
    let last = bench.sent_terminate().unwrap();
    assert_eq!(last.cause, Cause::Rdmap(RdmapError::AccessRights));
    assert_eq!(bench.stream.cause(), Some(&refusal()), "noticed first");
}

#[test]
fn a_read_refused_on_delivery_is_not_owed() {
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    let (_, step) = bench.stream.handle(&read(2), bench.now).unwrap();
    assert!(matches!(step, Step::Deliver(Delivery::ReadRequest { .. })));
    bench
        .stream
        .fail(Violation::NotEnabled(Opcode::ReadRequest));
    assert_eq!(
        bench.stream.accounting().reads_in.len(),
        1,
        "the first alone"
    );
    bench.send(answer(LEN));
    assert_eq!(
        frame_names(&bench.control(true)),
        names(&[Opcode::Terminate])
    );
}

#[test]
fn answered_read_needs_no_acknowledgement() {
    // Answered before any other call, then the stream fails: no acknowledgement is sent.
    let mut bench = Bench::verbena();
    let (_, step) = bench.stream.handle(&read(1), bench.now).unwrap();
    assert!(matches!(step, Step::Deliver(_)));
    bench.send(answer(LEN));
    bench.stream.fail(refusal());
    assert_eq!(
        frame_names(&bench.control(true)),
        names(&[Opcode::Terminate])
    );
}

#[test]
fn caller_may_drop_owed_answers() {
    type DropResponses = fn(&mut Bench);
    let abort: DropResponses = |b| b.stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
    let drop: DropResponses = |b| b.stream.drop_responses();
    for give_up in [abort, drop] {
        let mut bench = Bench::verbena();
        bench.feed(&read(1)).unwrap();
        let mut outgoing = bench.stream.begin(answer(LEN)).unwrap();
        frame(&mut bench, &mut outgoing);
        bad_write(&mut bench);
        give_up(&mut bench);
        assert!(!bench.stream.owes_responses());
        assert!(bench.stream.next_frame(&mut outgoing).is_none());
        let last = bench.sent_terminate().unwrap();
        assert_eq!(last.cause, Cause::Ddp(DdpError::TaggedInvalidStag));
        assert_eq!(bench.stream.state(), State::Terminated);
    }
    // On a stream that is not failing nothing is dropped, and after an abort nothing is answered.
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    bench.stream.drop_responses();
    assert_eq!(bench.stream.accounting().reads_in.len(), 1);
    bench
        .stream
        .abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
    assert!(!bench.stream.owes_responses());
    assert_eq!(
        frame_names(&bench.control(true)),
        names(&[Opcode::Terminate])
    );
}

#[test]
fn no_answers_are_owed_without_a_terminate() {
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    bench.stream.fail(Violation::CutFpdu);
    assert!(!bench.stream.owes_responses());
    assert_eq!(
        bench.stream.begin(answer(LEN)).unwrap_err(),
        BeginError::Closed
    );
    assert!(bench.control(true).is_empty());
}

#[test]
fn no_answer_precedes_caps_or_rtr() {
    // A hostile peer reads before this side's CAPS or ready-to-receive message was sent.
    let mut with_caps = Bench::new(&agreement(Role::Responder, true), settings());
    let caps = control(&Control::Caps(crate::testing::caps()), 1);
    with_caps.feed(&caps).unwrap();
    let mut agreed = agreement(Role::Initiator, false);
    agreed.rtr = Rtr::Write;
    let with_rtr = Bench::new(&agreed, settings());
    for mut bench in [with_caps, with_rtr] {
        bench.feed(&read(1)).unwrap();
        bad_write(&mut bench);
        assert!(!bench.stream.owes_responses());
        assert_eq!(
            frame_names(&bench.control(true)),
            names(&[Opcode::Terminate])
        );
    }
    // The read that opens a stream is answered like any other.
    let mut agreed = agreement(Role::Responder, false);
    agreed.rtr = Rtr::AnyOf(RtrKinds {
        read: true,
        ..RtrKinds::default()
    });
    let mut bench = Bench::new(&agreed, settings());
    let opening = fpdu(untagged(Opcode::ReadRequest, 1), &request(0).emit());
    bench.feed(&opening).unwrap();
    bad_write(&mut bench);
    let mut out = bench.send(answer(0));
    out.extend(bench.control(true));
    let expected = [Opcode::ReadResponse, Opcode::Terminate];
    assert_eq!(frame_names(&out), names(&expected));
}

#[test]
fn requester_learns_failed_request_at_every_split() {
    every_framing(|pair| {
        let reading = Message::ReadRequest(request(300));
        let mut bytes = Vec::new();
        for message in [
            Message::Write {
                stag: Stag::new(1),
                to: To::new(0),
                len: 10,
            },
            reading.clone(),
            reading,
            Message::Send {
                solicited: false,
                invalidate: None,
                len: 20,
            },
        ] {
            bytes.extend(pair.a.send(message));
        }
        let extensions = pair.a.stream.peer_caps().is_some();
        let mut told: Option<Vec<u8>> = None;
        for at in 0..=bytes.len() {
            let (mut a, mut b) = (pair.a.clone(), pair.b.clone());
            b.claim = Claim::Granted { capacity: 19 };
            let fed = b.feed(&bytes[..at]);
            let fed = fed.and_then(|()| b.feed(&bytes[at..]));
            assert!(matches!(fed, Err(Violation::TooLong { .. })));
            let mut out = b.control(true);
            for _ in 0..2 {
                out.extend(b.send(answer(300)));
                out.extend(b.control(true));
            }
            assert_eq!(b.stream.state(), State::Terminated);
            a.feed(&out).unwrap();
            assert!(matches!(a.delivered.last(), Some(Delivery::Terminate(..))));
            let done = |d: &&Delivery| matches!(d, Delivery::ReadDone(_));
            assert_eq!(a.delivered.iter().filter(done).count(), 2);
            if extensions {
                assert_eq!(a.stream.accounting().requester.acked(), Rsn::wrapping(3));
            }
            assert_eq!(*told.get_or_insert(out.clone()), out, "split at {at}");
        }
    });
}

#[test]
fn failing_stream_answers_during_peer_rnr() {
    // docs/extensions.md: after RNR a response may begin although a request was left unfinished.
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    let ours = Message::Send {
        solicited: false,
        invalidate: None,
        len: LEN,
    };
    let mut outgoing = bench.stream.begin(ours).unwrap();
    frame(&mut bench, &mut outgoing);
    let (rsn, timer) = (Rsn::ZERO, crate::testing::timer());
    let rnr = control(&Control::Rnr { rsn, timer }, 2);
    bench.feed(&rnr).unwrap();
    bad_write(&mut bench);
    bench.send(answer(LEN));
    assert_eq!(
        frame_names(&bench.control(true)),
        names(&[Opcode::Terminate])
    );
}

#[test]
fn unfinished_peer_message_keeps_owed_answers() {
    let mut bench = Bench::verbena();
    bench.feed(&read(1)).unwrap();
    let open = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 0)
    };
    bench.feed(&fpdu(open, b"half")).unwrap();
    let refused = bench.expect_violation(&fpdu(untagged(Opcode::Send, 1), b""));
    assert!(matches!(refused, Violation::Interleaved { .. }));
    let mut out = bench.send(answer(0));
    out.extend(bench.control(true));
    let expected = [Opcode::ReadResponse, Opcode::Terminate];
    assert_eq!(frame_names(&out), names(&expected));
}
