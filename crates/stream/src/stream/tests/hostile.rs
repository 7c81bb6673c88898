//! What a hostile or broken peer can send on an established stream, one named test each.
//! Every case asserts the exact violation, that no byte was placed, and the Terminate that answers it.

mod control;

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, DdpError, FlushScope, LlpError, Opcode,
    RdmapError, ReadRequest,
};
use verbena_wire::{Malformed, Mo, Msn, Qn, Stag, To};

use crate::testing::{Bench, fpdu, tagged, timer, untagged};
use crate::{AccessFault, BeginError, Delivery, Message, Violation};

fn answered(bench: &mut Bench, cause: Cause) {
    let words = bench.sent_terminate().expect("a Terminate");
    assert_eq!(words.cause, cause);
    assert!(bench.stream.poll_control(true).is_none(), "said once");
}

fn unspecified() -> Cause {
    Cause::Rdmap(RdmapError::UnspecifiedOperation)
}

fn raw(ulpdu_len: u16, rest: &[u8]) -> Vec<u8> {
    [&ulpdu_len.to_be_bytes(), rest].concat()
}

#[test]
fn length_shorter_than_any_header_is_refused() {
    for len in 0..14 {
        let mut bench = Bench::standard();
        let refused = bench.expect_violation(&raw(len, &[0xc1, 0x40]));
        assert_eq!(refused, Violation::TooShort { need: 14, got: len });
        answered(&mut bench, unspecified());
    }
}

#[test]
fn length_below_untagged_header_is_refused() {
    for len in 14..18 {
        let mut bench = Bench::standard();
        let refused = bench.expect_violation(&raw(len, &[0x41; 32]));
        assert_eq!(refused, Violation::TooShort { need: 18, got: len });
    }
}

#[test]
fn length_65535_is_accepted() {
    let mut bench = Bench::standard();
    let payload = vec![7; 65535 - 14];
    let write = tagged(Opcode::Write, 1, 0);
    bench.feed(&fpdu(write, &payload)).unwrap();
    assert_eq!(bench.delivered.len(), 1);
}

#[test]
fn wrong_ddp_versions_are_refused() {
    for version in [0, 2, 3] {
        let mut bench = Bench::standard();
        let mut bytes = fpdu(tagged(Opcode::Write, 1, 0), b"x");
        bytes[2] = 0xc0 | version;
        let expected = Malformed::DdpVersion {
            tagged: true,
            got: version,
        };
        assert_eq!(
            bench.expect_violation(&bytes),
            Violation::Malformed(expected)
        );
        answered(&mut bench, Cause::Ddp(DdpError::TaggedVersion));

        let mut bench = Bench::standard();
        let mut bytes = fpdu(untagged(Opcode::Send, 1), b"x");
        bytes[2] = 0x40 | version;
        bench.expect_violation(&bytes);
        answered(&mut bench, Cause::Ddp(DdpError::UntaggedVersion));
    }
}

#[test]
fn wrong_rdmap_versions_are_refused() {
    for version in [0, 2, 3] {
        let mut bench = Bench::standard();
        let mut bytes = fpdu(tagged(Opcode::Write, 1, 0), b"x");
        bytes[3] = version << 6;
        let expected = Malformed::RdmapVersion { got: version };
        assert_eq!(
            bench.expect_violation(&bytes),
            Violation::Malformed(expected)
        );
        answered(&mut bench, Cause::Rdmap(RdmapError::InvalidVersion));
    }
}

#[test]
fn extension_opcodes_are_refused_without_agreement() {
    for code in 0xc..=0xf_u8 {
        let mut bench = Bench::standard();
        let mut bytes = fpdu(untagged(Opcode::Send, 1), &[0; 16]);
        bytes[3] = 0x40 | code;
        let refused = bench.expect_violation(&bytes);
        assert!(matches!(refused, Violation::Opcode(o) if o.code() == code));
        answered(&mut bench, Cause::Rdmap(RdmapError::UnexpectedOpcode));
    }
}

#[test]
fn rfc_7306_opcodes_are_refused_when_disabled() {
    for code in 8..=0xb_u8 {
        let mut settings = crate::testing::settings();
        settings.rfc7306 = false;
        let agreement = crate::testing::agreement(crate::Role::Initiator, false);
        let mut bench = Bench::new(&agreement, settings);
        let mut bytes = fpdu(untagged(Opcode::Send, 1), &[0; 52]);
        bytes[3] = 0x40 | code;
        assert!(matches!(
            bench.expect_violation(&bytes),
            Violation::Opcode(_)
        ));
    }
}

#[test]
fn tagged_bit_must_match_the_opcode() {
    let mut bench = Bench::standard();
    let mut bytes = fpdu(untagged(Opcode::Send, 1), b"0123456789");
    bytes[3] = 0x40; // RDMA Write, untagged
    assert_eq!(
        bench.expect_violation(&bytes),
        Violation::Opcode(Opcode::Write)
    );
    let mut bench = Bench::standard();
    let mut bytes = fpdu(tagged(Opcode::Write, 1, 0), b"0123456789");
    bytes[3] = 0x43; // Send, tagged
    assert_eq!(
        bench.expect_violation(&bytes),
        Violation::Opcode(Opcode::Send)
    );
}

#[test]
fn wrong_queue_number_is_refused() {
    for qn in [1, 2, 3, 4, 5, 6, 7, 0x8000_0000, u32::MAX] {
        let mut bench = Bench::standard();
        let wrong = Untagged {
            qn: Qn::new(qn),
            ..untagged(Opcode::Send, 1)
        };
        let (opcode, got) = (Opcode::Send, Qn::new(qn));
        assert_eq!(
            bench.expect_violation(&fpdu(wrong, b"x")),
            Violation::Queue { opcode, got }
        );
        answered(&mut bench, Cause::Ddp(DdpError::UntaggedQn));
    }
}

fn send(msn: u32, mo: u32, last: bool) -> Untagged {
    Untagged {
        last,
        mo: Mo::new(mo),
        ..untagged(Opcode::Send, msn)
    }
}

#[test]
fn wrong_message_numbers_are_refused() {
    for (first, wrong) in [(1, 3), (1, 1), (1, 0), (1, u32::MAX)] {
        let mut bench = Bench::standard();
        bench.feed(&fpdu(send(first, 0, true), b"ok")).unwrap();
        let refused = bench.expect_violation(&fpdu(send(wrong, 0, true), b"no"));
        let (expected, got) = (Msn::new(2), Msn::new(wrong));
        let qn = Qn::SEND;
        assert_eq!(refused, Violation::MsnRange { qn, expected, got });
        answered(&mut bench, Cause::Ddp(DdpError::UntaggedMsnRange));
    }
    let refused = Bench::standard().expect_violation(&fpdu(send(0, 0, true), b"no"));
    assert!(
        matches!(refused, Violation::MsnRange { .. }),
        "numbers start at one"
    );
}

#[test]
fn wrong_message_offsets_are_refused() {
    for wrong in [6, 4, 0, u32::MAX] {
        let mut bench = Bench::standard();
        bench.feed(&fpdu(send(1, 0, false), b"01234")).unwrap();
        let refused = bench.expect_violation(&fpdu(send(1, wrong, true), b"567"));
        let (expected, got) = (Mo::new(5), Mo::new(wrong));
        assert_eq!(refused, Violation::Offset { expected, got });
        answered(&mut bench, Cause::Ddp(DdpError::UntaggedMo));
    }
    let refused = Bench::standard().expect_violation(&fpdu(send(1, 8, true), b"x"));
    assert!(matches!(refused, Violation::Offset { .. }));
}

#[test]
fn segment_may_not_change_the_opcode() {
    let mut bench = Bench::standard();
    bench.feed(&fpdu(send(1, 0, false), b"01234")).unwrap();
    let other = Untagged {
        opcode: Opcode::SendSe,
        ..send(1, 5, true)
    };
    let refused = bench.expect_violation(&fpdu(other, b"567"));
    let (began, got) = (Opcode::Send, Opcode::SendSe);
    assert_eq!(refused, Violation::Changed { began, got });
}

#[test]
fn message_longer_than_its_receive_is_refused() {
    let mut bench = Bench::standard();
    bench.claim = crate::Claim::Granted { capacity: 7 };
    bench.feed(&fpdu(send(1, 0, false), b"01234")).unwrap();
    let refused = bench.expect_violation(&fpdu(send(1, 5, true), b"567"));
    let (capacity, end) = (7, 8);
    assert_eq!(refused, Violation::TooLong { capacity, end });
    answered(&mut bench, Cause::Ddp(DdpError::UntaggedTooLong));
}

#[test]
fn missing_receive_ends_a_standard_stream() {
    let mut bench = Bench::standard();
    bench.claim = crate::Claim::NotReady { timer: timer() };
    let msn = Msn::FIRST;
    assert_eq!(
        bench.expect_violation(&fpdu(send(1, 0, true), b"x")),
        Violation::NoReceive { msn }
    );
    answered(&mut bench, Cause::Ddp(DdpError::UntaggedNoBuffer));
}

#[test]
fn wrapping_write_address_is_refused() {
    let mut bench = Bench::standard();
    let to = To::new(u64::MAX - 3);
    let write = tagged(Opcode::Write, 1, to.get());
    assert_eq!(
        bench.expect_violation(&fpdu(write, b"01234")),
        Violation::Wrap { to, len: 5 }
    );
    answered(&mut bench, Cause::Ddp(DdpError::TaggedToWrap));
    // A zero-length Write at the end of the address space is valid (RFC 5041 §7.2).
    let empty = tagged(Opcode::Write, 1, u64::MAX);
    Bench::standard().feed(&fpdu(empty, b"")).unwrap();
}

#[test]
fn discontinuous_tagged_segments_are_refused() {
    let open = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 100)
    };
    for (next, cause) in [
        (tagged(Opcode::Write, 1, 106), DdpError::TaggedBounds),
        (tagged(Opcode::Write, 1, 104), DdpError::TaggedBounds),
        (tagged(Opcode::Write, 2, 105), DdpError::TaggedInvalidStag),
    ] {
        let mut bench = Bench::standard();
        bench.feed(&fpdu(open, b"01234")).unwrap();
        bench.expect_violation(&fpdu(next, b"567"));
        answered(&mut bench, Cause::Ddp(cause));
    }
}

#[test]
fn interleaved_tagged_messages_are_refused() {
    let open = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 100)
    };
    let mut bench = Bench::standard();
    bench.feed(&fpdu(open, b"01234")).unwrap();
    let refused = bench.expect_violation(&fpdu(tagged(Opcode::ReadResponse, 1, 105), b"x"));
    let (open, got) = (Opcode::Write, Opcode::ReadResponse);
    assert_eq!(refused, Violation::Interleaved { open, got });
}

#[test]
fn unsolicited_read_response_is_refused() {
    let mut bench = Bench::standard();
    let unasked = Violation::Unsolicited(Opcode::ReadResponse);
    assert_eq!(
        bench.expect_violation(&fpdu(tagged(Opcode::ReadResponse, 1, 0), b"x")),
        unasked
    );
    answered(&mut bench, Cause::Ddp(DdpError::TaggedInvalidStag));
}

fn reading(size: u32) -> Bench {
    let mut bench = Bench::standard();
    let request = ReadRequest {
        sink_stag: Stag::new(9),
        sink_to: To::new(64),
        size,
        source_stag: Stag::new(5),
        source_to: To::new(0),
    };
    bench.send(Message::ReadRequest(request));
    bench
}

#[test]
fn mismatched_read_response_is_refused() {
    let answer = |stag, to| tagged(Opcode::ReadResponse, stag, to);
    let too_long = reading(4).expect_violation(&fpdu(answer(9, 64), b"01234"));
    assert!(matches!(
        too_long,
        Violation::ResponseTooLong {
            size: 4,
            end: 5,
            ..
        }
    ));
    let other = reading(4).expect_violation(&fpdu(answer(8, 64), b"0123"));
    assert!(matches!(other, Violation::ResponseStag { .. }));
    let shifted = reading(4).expect_violation(&fpdu(answer(9, 65), b"0123"));
    assert!(matches!(shifted, Violation::ResponseOffset { .. }));
    let short = reading(4).expect_violation(&fpdu(answer(9, 64), b"012"));
    assert!(matches!(
        short,
        Violation::ResponseShort {
            size: 4,
            got: 3,
            ..
        }
    ));
}

#[test]
fn cumulative_read_response_excess_is_refused() {
    let mut bench = reading(8);
    let first = Tagged {
        last: false,
        ..tagged(Opcode::ReadResponse, 9, 64)
    };
    bench.feed(&fpdu(first, b"012345")).unwrap();
    let refused = bench.expect_violation(&fpdu(tagged(Opcode::ReadResponse, 9, 70), b"678"));
    assert!(matches!(
        refused,
        Violation::ResponseTooLong {
            size: 8,
            end: 9,
            ..
        }
    ));
    answered(&mut bench, Cause::Ddp(DdpError::TaggedBounds));
}

#[test]
fn reads_beyond_agreed_depth_are_refused() {
    let mut bench = Bench::standard();
    let request = |msn| fpdu(untagged(Opcode::ReadRequest, msn), &[0; 28]);
    for msn in 1..=4 {
        bench.feed(&request(msn)).unwrap();
    }
    assert_eq!(
        bench.expect_violation(&request(5)),
        Violation::TooManyReads { limit: 4 }
    );
    bench.stream.drop_responses();
    answered(&mut bench, Cause::Rdmap(RdmapError::CatastrophicStream));
}

#[test]
fn wrong_length_or_segmented_bodies_are_refused() {
    for (opcode, right) in [
        (Opcode::ReadRequest, 28),
        (Opcode::AtomicRequest, 52),
        (Opcode::AtomicResponse, 12),
        (Opcode::Immediate, 8),
        (Opcode::ImmediateSe, 8),
    ] {
        for len in [0, right - 1, right + 1] {
            let refused =
                Bench::standard().expect_violation(&fpdu(untagged(opcode, 1), &vec![0; len]));
            let (need, got) = (right as u16, len as u16);
            assert_eq!(refused, Violation::BodyLength { opcode, need, got });
        }
        let piece = Untagged {
            last: false,
            ..untagged(opcode, 1)
        };
        let refused = Bench::standard().expect_violation(&fpdu(piece, &vec![0; right]));
        assert_eq!(refused, Violation::NotSingle(opcode));
    }
}

#[test]
fn unknown_atomic_code_is_refused() {
    let mut bench = Bench::standard();
    let mut body = [0; 52];
    body[3] = 9;
    let refused = bench.expect_violation(&fpdu(untagged(Opcode::AtomicRequest, 1), &body));
    assert_eq!(
        refused,
        Violation::Malformed(Malformed::AtomicCode { got: 9 })
    );
    answered(&mut bench, Cause::Rdmap(RdmapError::UnexpectedOpcode));
}

/// An Atomic Write and both kinds of Flush.
fn placement_requests() -> [AtomicRequest; 3] {
    let ops = [
        AtomicOp::Write { bytes: [7; 8] },
        AtomicOp::Flush(FlushScope::Range { len: 8 }),
        AtomicOp::Flush(FlushScope::Region),
    ];
    ops.map(|op| AtomicRequest {
        op,
        id: 1,
        stag: Stag::new(1),
        to: To::new(0),
    })
}

#[test]
fn placement_requests_need_agreement_both_ways() {
    for request in placement_requests() {
        let bytes = fpdu(untagged(Opcode::AtomicRequest, 1), &request.emit());
        let mut bench = Bench::verbena();
        bench.feed(&bytes).unwrap();
        assert!(matches!(
            bench.delivered[..],
            [Delivery::AtomicRequest { request: got, .. }] if got == request
        ));
        assert!(bench.stream.begin(Message::AtomicRequest(request)).is_ok());

        let mut bench = Bench::standard();
        let unsupported = BeginError::Unsupported(Opcode::AtomicRequest);
        let begun = bench.stream.begin(Message::AtomicRequest(request));
        assert_eq!(begun.err(), Some(unsupported));
        let got = request.op.code();
        let expected = Violation::Malformed(Malformed::AtomicCode { got });
        assert_eq!(bench.expect_violation(&bytes), expected);
        answered(&mut bench, Cause::Rdmap(RdmapError::UnexpectedOpcode));
    }
}

#[test]
fn undefined_placement_type_is_refused() {
    let mut bench = Bench::verbena();
    let mut body = placement_requests()[1].emit();
    body[35] = 2;
    let refused = bench.expect_violation(&fpdu(untagged(Opcode::AtomicRequest, 1), &body));
    let expected = Malformed::FlushKind {
        placement: 2,
        selectivity: 0,
    };
    assert_eq!(refused, Violation::Malformed(expected));
    assert!(bench.delivered.is_empty());
    answered(&mut bench, Cause::Rdmap(RdmapError::UnexpectedOpcode));
}

#[test]
fn unsolicited_atomic_response_is_refused() {
    let answer = AtomicResponse { id: 1, original: 0 }.emit();
    let refused =
        Bench::standard().expect_violation(&fpdu(untagged(Opcode::AtomicResponse, 1), &answer));
    assert_eq!(refused, Violation::Unsolicited(Opcode::AtomicResponse));
}

#[test]
fn truncated_terminate_is_refused_at_every_length() {
    // DDP untagged, no buffer, with the 18-byte header of the offender (RFC 5040 §4.8).
    let full = [&[0x12, 0x02, 0xc0, 0, 0, 0x40][..], &[0x41; 18]].concat();
    for len in 0..full.len() {
        let mut bench = Bench::standard();
        let refused = bench.expect_violation(&fpdu(untagged(Opcode::Terminate, 1), &full[..len]));
        assert!(matches!(refused, Violation::Malformed(_)), "{len} bytes");
    }
    let mut bench = Bench::standard();
    bench
        .feed(&fpdu(untagged(Opcode::Terminate, 1), &full))
        .unwrap();
    assert_eq!(bench.delivered.len(), 1);
}

#[test]
fn overlong_terminate_is_refused() {
    let refused =
        Bench::standard().expect_violation(&fpdu(untagged(Opcode::Terminate, 1), &[0; 300]));
    assert!(matches!(refused, Violation::BodyLength { .. }));
}

#[test]
fn any_flipped_bit_fails_the_crc() {
    let mut agreement = crate::testing::agreement(crate::Role::Initiator, false);
    agreement.crc = true;
    let ulpdu = [
        &verbena_wire::ddp::Header::from(send(1, 0, true)).emit()[..],
        b"hello",
    ]
    .concat();
    let mut good = Vec::new();
    verbena_wire::mpa::fpdu::emit_fpdu(&ulpdu, None, true, &mut good);
    // The length field is not changed: a wrong length may just request more bytes.
    for bit in 16..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut bench = Bench::new(&agreement, crate::testing::settings());
        assert!(
            matches!(bench.expect_violation(&bad), Violation::Crc { .. }),
            "bit {bit}"
        );
    }
    let mut bench = Bench::new(&agreement, crate::testing::settings());
    let last = good.len() - 1;
    good[last] ^= 1;
    bench.expect_violation(&good);
    answered(&mut bench, Cause::Llp(LlpError::Crc));
}

#[test]
fn wrong_marker_pointer_is_refused() {
    for crc in [false, true] {
        let mut agreement = crate::testing::agreement(crate::Role::Initiator, false);
        (agreement.crc, agreement.markers_rx) = (crc, true);
        let header = verbena_wire::ddp::Header::from(send(1, 0, true)).emit();
        let ulpdu = [&header[..], &[5; 1200]].concat();
        let mut good = Vec::new();
        let start = Some(verbena_wire::mpa::fpdu::Phase::START);
        verbena_wire::mpa::fpdu::emit_fpdu(&ulpdu, start, crc, &mut good);
        for at in [0, 512, 1024] {
            let mut bad = good.clone();
            bad[at + 3] ^= 0x40;
            if crc {
                let end = bad.len() - 4;
                let sum = verbena_wire::crc::crc32c(&bad[..end]).to_le_bytes();
                bad[end..].copy_from_slice(&sum);
            }
            let mut bench = Bench::new(&agreement, crate::testing::settings());
            let violation = bench.feed(&bad).expect_err("must be refused");
            assert!(
                matches!(violation, Violation::Marker { .. }),
                "marker at {at}"
            );
            answered(&mut bench, Cause::Llp(LlpError::Marker));
        }
    }
}

#[test]
fn verbena_peer_may_not_interleave_messages() {
    let mut bench = Bench::verbena();
    let open = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 100)
    };
    bench.feed(&fpdu(open, b"01234")).unwrap();
    let refused = bench.expect_violation(&fpdu(send(1, 0, true), b"x"));
    let (open, got) = (Opcode::Write, Opcode::Send);
    assert_eq!(refused, Violation::Interleaved { open, got });
}

#[test]
fn read_with_wrapping_sink_is_refused() {
    // Its response could not be addressed (RFC 5040 §4.8: remote protection, TO wrap).
    let request = ReadRequest {
        sink_stag: Stag::new(0xaa),
        sink_to: To::new(u64::MAX - 3),
        size: 5,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    };
    let mut bench = Bench::standard();
    let bytes = fpdu(untagged(Opcode::ReadRequest, 1), &request.emit());
    assert_eq!(
        bench.expect_violation(&bytes),
        Violation::Access {
            opcode: Opcode::ReadRequest,
            stag: request.sink_stag,
            fault: AccessFault::Wrap,
        }
    );
    let words = bench.sent_terminate().unwrap();
    assert_eq!(words.cause, Cause::Rdmap(RdmapError::ToWrap));
    assert_eq!(words.segment.unwrap().read_request, Some(request));
    // This side does not send such a request either; a zero-length read is valid at any address.
    let mut bench = Bench::standard();
    let ours = bench.stream.begin(Message::ReadRequest(request));
    assert_eq!(ours.unwrap_err(), BeginError::TooLong);
    let empty = ReadRequest { size: 0, ..request };
    let bytes = fpdu(untagged(Opcode::ReadRequest, 1), &empty.emit());
    bench.feed(&bytes).unwrap();
}

#[test]
fn nothing_after_a_violation_has_any_effect() {
    let mut bench = Bench::standard();
    bench.expect_violation(&raw(3, &[0; 8]));
    bench.feed(&fpdu(send(1, 0, true), b"late")).unwrap();
    assert!(bench.delivered.is_empty() && bench.placed.is_empty());
    let second = bench.stream.cause().copied();
    assert!(
        matches!(second, Some(Violation::TooShort { .. })),
        "the first cause stays"
    );
}

#[test]
fn send_immediate_without_its_data_is_refused() {
    let opcode = Opcode::SendImm {
        solicited: false,
        invalidate: false,
    };
    for len in 0..8_u32 {
        let mut bench = Bench::verbena();
        let refused = bench.expect_violation(&fpdu(untagged(opcode, 1), &vec![0; len as usize]));
        assert_eq!(refused, Violation::ImmediateMissing { got: len });
        answered(&mut bench, Cause::Ddp(DdpError::UntaggedMo));
    }
}
