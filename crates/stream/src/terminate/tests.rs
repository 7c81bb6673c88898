//! Tests of the function from violations to Terminates: every violation has its row, kept as a snapshot.

use verbena_wire::rdmap::AtomicRequest;
use verbena_wire::{Mo, Msn, Qn, Rsn, Srqn, Stag, To};

use super::*;
use crate::testing::{tagged, untagged};

/// One of each violation, in the order of their declaration.
fn every_violation() -> Vec<Violation> {
    use Violation as V;
    let (opcode, stag, to) = (Opcode::Send, Stag::new(1), To::new(2));
    let rsn = Rsn::ZERO;
    let faults = [
        AccessFault::InvalidStag,
        AccessFault::Touched,
        AccessFault::Bounds,
        AccessFault::Rights,
        AccessFault::NotAssociated,
        AccessFault::Wrap,
        AccessFault::CannotInvalidate,
    ];
    let accesses = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::AtomicRequest,
        Opcode::SendInv,
    ];
    let access = accesses.iter().flat_map(|&opcode| {
        faults.iter().map(move |&fault| V::Access {
            opcode,
            stag,
            fault,
        })
    });
    let responses = [Opcode::ReadResponse, Opcode::ReadV2Response];
    let too_long = responses.map(|opcode| V::ResponseTooLong {
        opcode,
        size: 1,
        end: 2,
    });
    let short = responses.map(|opcode| V::ResponseShort {
        opcode,
        size: 2,
        got: 1,
    });
    let malformed = [
        Malformed::DdpVersion {
            tagged: true,
            got: 0,
        },
        Malformed::DdpVersion {
            tagged: false,
            got: 0,
        },
        Malformed::RdmapVersion { got: 0 },
        Malformed::AtomicCode { got: 1 },
        Malformed::ControlKind { got: 9 },
    ];
    let mut all = vec![
        V::Crc {
            expected: 1,
            got: 2,
        },
        V::Marker {
            expected: 4,
            got: 8,
        },
        V::TooShort { need: 14, got: 3 },
        V::CutFpdu,
        V::CutMessage,
        V::Opcode(opcode),
        V::BodyLength {
            opcode,
            need: 1,
            got: 2,
        },
        V::NotSingle(opcode),
        V::Queue {
            opcode,
            got: Qn::new(9),
        },
        V::MsnRange {
            qn: Qn::SEND,
            expected: Msn::FIRST,
            got: Msn::new(5),
        },
        V::NoReceive { msn: Msn::FIRST },
        V::Offset {
            expected: Mo::ZERO,
            got: Mo::new(1),
        },
        V::OffsetWrap {
            mo: Mo::new(u32::MAX),
            len: 1,
        },
        V::TooLong {
            capacity: 1,
            end: 2,
        },
        V::Changed {
            began: opcode,
            got: Opcode::SendSe,
        },
        V::ImmediateMissing { got: 3 },
        V::Wrap { to, len: 1 },
        V::TaggedGap {
            expected: to,
            got: To::new(3),
        },
        V::TaggedStag {
            expected: stag,
            got: Stag::new(2),
        },
        V::TaggedTooLong,
        V::Interleaved {
            open: Opcode::Write,
            got: opcode,
        },
        V::TooManyReads { limit: 1 },
        V::Unsolicited(Opcode::ReadResponse),
        V::Unsolicited(Opcode::AtomicResponse),
        V::ResponseStag {
            expected: stag,
            got: Stag::new(2),
        },
        V::ResponseOffset {
            expected: to,
            got: To::new(3),
        },
        V::AtomicId {
            expected: 1,
            got: 2,
        },
        V::NotRtr(opcode),
        V::NotEnabled(opcode),
        V::Unaligned { to },
        V::ReceiveBuffer,
        V::NoSuchSrq(Srqn::wrapping(5)),
        V::Impossible {
            kind: "ACK",
            low: rsn,
            high: rsn,
            got: Rsn::wrapping(3),
        },
        V::OutOfPlace("RESUME"),
        V::Caps,
    ];
    all.extend(malformed.map(V::Malformed));
    all.extend(too_long);
    all.extend(short);
    all.extend(access);
    all
}

#[test]
fn every_violation_has_its_terminate() {
    let request = ReadRequest {
        sink_stag: Stag::new(1),
        sink_to: To::new(0),
        size: 8,
        source_stag: Stag::new(2),
        source_to: To::new(0),
    };
    let header = Header::Untagged(untagged(Opcode::ReadRequest, 1));
    let mut lines = String::new();
    for violation in every_violation() {
        let is_read = matches!(
            violation,
            Violation::Access {
                opcode: Opcode::ReadRequest,
                ..
            }
        );
        let offender = Offender::of(&header, 46, is_read.then_some(request));
        let answer = match terminate_for(&violation, Some(&offender)) {
            None => "no Terminate".to_owned(),
            Some(terminate) => {
                let (layer, etype, code) = terminate.cause.codes();
                let echo = match terminate.segment {
                    None => "",
                    Some(e) if e.read_request.is_some() => " MDR",
                    Some(_) => " MD",
                };
                format!("{layer}/{etype}/{code:#04x}{echo}")
            }
        };
        lines += &format!("{violation} => {answer}\n");
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn an_offender_without_a_header_echoes_nothing() {
    let violation = Violation::TooShort { need: 14, got: 3 };
    assert_eq!(terminate_for(&violation, None).unwrap().segment, None);
}

#[test]
fn tagged_offenders_echo_their_fourteen_bytes() {
    let header = Header::Tagged(tagged(Opcode::Write, 5, 6));
    let offender = Offender::of(&header, 22, None);
    let violation = Violation::Wrap {
        to: To::new(6),
        len: 8,
    };
    let echo = terminate_for(&violation, Some(&offender)).unwrap().segment;
    let expected = EchoHeader::Tagged(tagged(Opcode::Write, 5, 6).emit());
    assert_eq!(echo.unwrap().header, Some(expected));
}

#[test]
fn an_atomic_returns_its_ddp_header_only() {
    // RFC 7306 §8: no RDMAP header, whatever the request was.
    let header = Header::Untagged(untagged(Opcode::AtomicRequest, 1));
    let len = 18 + AtomicRequest::LEN as u16;
    let offender = Offender::of(&header, len, None);
    let violation = Violation::Access {
        opcode: Opcode::AtomicRequest,
        stag: Stag::new(1),
        fault: AccessFault::Rights,
    };
    let echo = terminate_for(&violation, Some(&offender)).unwrap().segment;
    assert_eq!(echo.unwrap().read_request, None);
}
