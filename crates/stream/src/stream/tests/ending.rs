//! How a stream ends: access violations, reads that fail late, the peer's Terminate, closed connections.

use verbena_wire::ddp::Tagged;
use verbena_wire::ext::Control;
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::rdmap::{Cause, DdpError, LlpError, Opcode, RdmapError, ReadRequest};
use verbena_wire::{Rsn, Stag, To};

use crate::startup::{Role, Rtr};
use crate::stream::State;
use crate::testing::{Bench, agreement, control, fpdu, settings, tagged, untagged};
use crate::{AccessFault, BeginError, Delivery, Message, Offender, Step, Violation};

#[test]
fn refused_write_sends_ack_then_terminate() {
    let mut bench = Bench::verbena();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 0), b"good"))
        .unwrap();
    let bytes = fpdu(tagged(Opcode::Write, 0x0bad_f00d, 0x1000), b"ABCDEFGH");
    let (used, step) = bench.stream.handle(&bytes, bench.now).unwrap();
    assert!(matches!(step, Step::Place(_)) && used == 16);
    let opcode = Opcode::Write;
    let (stag, fault) = (Stag::new(0x0bad_f00d), AccessFault::InvalidStag);
    bench.stream.fail(Violation::Access {
        opcode,
        stag,
        fault,
    });
    // First the acknowledgement of what was executed, then the Terminate.
    let acked = control(&Control::Ack(Rsn::wrapping(1)), 2);
    let words = bench.control(false);
    assert_eq!(words[..acked.len()], acked);
    assert_eq!(words[acked.len()..].len(), 44);
    assert_eq!(
        words[acked.len() + 20..][..20],
        *b"\x11\x00\xc0\x00\x00\x16\xc1\x40\x0b\xad\xf0\x0d\0\0\0\0\0\0\x10\0"
    );
    assert_eq!(bench.stream.state(), State::Terminated);
}

#[test]
fn failed_invalidate_prevents_acknowledgement() {
    let mut bench = Bench::verbena();
    let mut header = untagged(Opcode::SendInv, 1);
    header.ulp = 0x55;
    bench.feed(&fpdu(header, b"x")).unwrap();
    // `feed` ends in More, so the send counts; a second one fails at the moment of its delivery.
    let mut header = untagged(Opcode::SendInv, 2);
    header.ulp = 0x66;
    let bytes = fpdu(header, b"");
    let (used, step) = bench.stream.handle(&bytes, bench.now).unwrap();
    assert!(matches!(step, Step::Claim { .. }));
    bench.stream.claim(bench.claim).unwrap();
    let (_, step) = bench.stream.handle(&bytes[used..], bench.now).unwrap();
    assert!(matches!(step, Step::Deliver(Delivery::Send { .. })));
    bench.stream.fail(Violation::Access {
        opcode: Opcode::SendInv,
        stag: Stag::new(0x66),
        fault: AccessFault::CannotInvalidate,
    });
    let acked = control(&Control::Ack(Rsn::wrapping(1)), 2);
    assert_eq!(bench.control(false)[..acked.len()], acked);
}

#[test]
fn late_read_failure_echoes_advanced_request() {
    // RFC 5040 §7.1.
    let mut bench = Bench::standard();
    let request = ReadRequest {
        sink_stag: Stag::new(1),
        sink_to: To::new(0x100),
        size: 1000,
        source_stag: Stag::new(2),
        source_to: To::new(0x200),
    };
    bench
        .feed(&fpdu(untagged(Opcode::ReadRequest, 1), &request.emit()))
        .unwrap();
    let Delivery::ReadRequest { header, .. } = bench.delivered[0].clone() else {
        panic!("a read request");
    };
    let offender = Offender::of(&header.into(), 46, Some(request)).advanced(300);
    let violation = Violation::Access {
        opcode: Opcode::ReadRequest,
        stag: Stag::new(2),
        fault: AccessFault::Bounds,
    };
    bench.stream.fail_for(violation, Some(offender));
    let words = bench.sent_terminate().unwrap();
    assert_eq!(words.cause, Cause::Rdmap(RdmapError::Bounds));
    let echoed = words.segment.unwrap().read_request.unwrap();
    assert_eq!(echoed.size, 700);
    assert_eq!(echoed.sink_to, To::new(0x100 + 300));
    assert_eq!(echoed.source_to, To::new(0x200 + 300));
    assert_eq!(echoed.source_stag, Stag::new(2));
}

#[test]
fn peer_terminate_is_delivered_and_ends_stream() {
    for extensions in [false, true] {
        let mut bench = if extensions {
            Bench::verbena()
        } else {
            Bench::standard()
        };
        // Also inside an unfinished message of the peer.
        let mut open = tagged(Opcode::Write, 1, 0);
        open.last = false;
        bench.feed(&fpdu(open, b"abc")).unwrap();
        let mut bytes = fpdu(untagged(Opcode::Terminate, 1), &[0x12, 5, 0, 0]);
        bytes.extend(fpdu(untagged(Opcode::Send, 1), b"late"));
        bench.feed(&bytes).unwrap();
        let Some(Delivery::Terminate(terminate, _)) = bench.delivered.last() else {
            panic!("a Terminate");
        };
        assert_eq!(terminate.cause, Cause::Ddp(DdpError::UntaggedTooLong));
        assert_eq!(bench.stream.state(), State::PeerTerminated);
        assert!(bench.control(true).is_empty(), "nothing is answered");
        let write = Message::ReadResponse {
            stag: Stag::new(1),
            to: To::new(0),
            len: 0,
        };
        assert_eq!(bench.stream.begin(write).unwrap_err(), BeginError::Closed);
    }
}

#[test]
fn a_closed_connection_is_clean_only_between_messages() {
    let mut bench = Bench::standard();
    assert_eq!(bench.stream.handle_eof(0), Ok(()));
    assert_eq!(bench.stream.state(), State::Ended);

    let mut bench = Bench::standard();
    assert_eq!(bench.stream.handle_eof(1), Err(Violation::CutFpdu));

    let mut bench = Bench::standard();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 0), b"abcdef")[..19])
        .unwrap();
    assert_eq!(bench.stream.handle_eof(0), Err(Violation::CutFpdu));
    assert!(
        bench.control(true).is_empty(),
        "no peer is left to read a Terminate"
    );

    let mut bench = Bench::standard();
    let mut open = tagged(Opcode::Write, 1, 0);
    open.last = false;
    bench.feed(&fpdu(open, b"abc")).unwrap();
    assert_eq!(bench.stream.handle_eof(0), Err(Violation::CutMessage));
}

#[test]
fn local_abort_sends_its_cause() {
    let mut bench = Bench::standard();
    bench
        .stream
        .abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
    let words = bench.sent_terminate().unwrap();
    assert_eq!(words.cause, Cause::Rdmap(RdmapError::LocalCatastrophic));
    assert_eq!(words.segment, None);
}

fn rtr_pair(kinds: RtrKinds, rtr: Rtr) -> (Bench, Bench) {
    let mut initiator = agreement(Role::Initiator, false);
    initiator.rtr = rtr;
    let mut responder = agreement(Role::Responder, false);
    responder.rtr = Rtr::AnyOf(kinds);
    (
        Bench::new(&initiator, settings()),
        Bench::new(&responder, settings()),
    )
}

#[test]
fn rtr_message_opens_stream_and_completes_nothing() {
    // RFC 6581 §9.2.
    let kinds = RtrKinds {
        send: true,
        write: true,
        read: true,
    };
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let (mut a, mut b) = rtr_pair(kinds, rtr);
        let early = Message::Send {
            solicited: false,
            invalidate: None,
            len: 0,
        };
        assert_eq!(a.stream.begin(early).unwrap_err(), BeginError::Opening);
        b.claim = crate::Claim::Drop;
        b.feed(&a.control(false)).unwrap();
        assert_eq!(b.stream.state(), State::Running, "{rtr:?}");
        if rtr == Rtr::Read {
            let Delivery::ReadRequest { request, .. } = b.delivered[0].clone() else {
                panic!("a read request");
            };
            assert_eq!(request.size, 0);
            let answer = b.send(Message::ReadResponse {
                stag: request.sink_stag,
                to: request.sink_to,
                len: 0,
            });
            a.feed(&answer).unwrap();
            assert_eq!(a.delivered, [Delivery::Rtr], "its answer is swallowed");
        } else {
            assert_eq!(b.delivered, [Delivery::Rtr]);
        }
        let message = Message::Write {
            stag: Stag::new(1),
            to: To::new(0),
            len: 3,
        };
        b.feed(&a.send(message.clone())).unwrap();
        a.feed(&b.send(message)).unwrap();
    }
}

#[test]
fn first_message_must_be_the_agreed_rtr() {
    let kinds = RtrKinds {
        send: false,
        write: true,
        read: false,
    };
    // No payload yet, but not the last segment.
    let not_all = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 0)
    };
    for bytes in [
        fpdu(tagged(Opcode::Write, 1, 0), b"not empty"),
        fpdu(not_all, b""),
        fpdu(untagged(Opcode::Send, 1), b""),
        fpdu(untagged(Opcode::ReadRequest, 1), &[0; 28]),
    ] {
        let (_, mut b) = rtr_pair(kinds, Rtr::Write);
        assert!(matches!(b.expect_violation(&bytes), Violation::NotRtr(_)));
        let words = b.sent_terminate().unwrap();
        assert_eq!(words.cause, Cause::Llp(LlpError::NoMatchingRtr));
    }
}
