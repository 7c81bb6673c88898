//! Terminate frames: a refused Write, a refused Read Request with its header, and a checksum error
//! as RFC 6581 and as hardware adapters encode it. Then Terminates captured from Linux siw, in its
//! own layout.

use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::rdmap::terminate::{Dialect, Echo, EchoHeader, Phase, Terminate};
use verbena_wire::rdmap::{Cause, DdpError, LlpError, Opcode, RdmapError, ReadRequest};
use verbena_wire::{Mo, Msn, Qn, Stag, To};

use crate::support::{frame_both_ways, hex, ulpdu_of};

fn untagged(opcode: Opcode, qn: Qn, msn: u32) -> Untagged {
    Untagged {
        last: true,
        opcode,
        ulp: 0,
        qn,
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    }
}

fn both_ways(frame: &str, terminate: &Terminate) {
    let header = untagged(Opcode::Terminate, Qn::TERMINATE, 1);
    let mut payload = Vec::new();
    terminate.emit(Dialect::Rfc, &mut payload);
    frame_both_ways(frame, header, &payload);
    assert_eq!(parse(frame), *terminate);
}

fn parse(frame: &str) -> Terminate {
    let ulpdu = ulpdu_of(&hex(frame));
    let got = Terminate::parse(&ulpdu[Untagged::LEN..], Phase::Running);
    let (terminate, dialect) = got.expect("a terminate message");
    assert_eq!(dialect, Dialect::Rfc);
    terminate
}

#[test]
fn write_to_an_unknown_stag() {
    let write = Header::from(Tagged {
        last: true,
        opcode: Opcode::Write,
        stag: Stag::new(0x0bad_f00d),
        to: To::new(0x1000),
    });
    both_ways(
        "0026 4147 00000000 00000002 00000001 00000000 | 11 00 c0 00 | 0016 |
         c140 0badf00d 0000000000001000 | 8ad4b24c",
        &Terminate {
            cause: Cause::Ddp(DdpError::TaggedInvalidStag),
            segment: Some(Echo {
                segment_len: 22,
                header: Some(EchoHeader::from(write)),
                read_request: None,
            }),
        },
    );
}

#[test]
fn read_outside_its_bounds() {
    let read = Header::from(untagged(Opcode::ReadRequest, Qn::READ_REQUEST, 5));
    both_ways(
        "0046 4147 00000000 00000002 00000001 00000000 | 01 01 e0 00 | 002e |
         4141 00000000 00000001 00000005 00000000
         0000aa01 00007f0000002000 00001000 12345678 00000000ffff0000 | 76ed7e29",
        &Terminate {
            cause: Cause::Rdmap(RdmapError::Bounds),
            segment: Some(Echo {
                segment_len: 46,
                header: Some(EchoHeader::from(read)),
                read_request: Some(ReadRequest {
                    sink_stag: Stag::new(0xaa01),
                    sink_to: To::new(0x7f00_0000_2000),
                    size: 0x1000,
                    source_stag: Stag::new(0x1234_5678),
                    source_to: To::new(0xffff_0000),
                }),
            }),
        },
    );
}

#[test]
fn checksum_error() {
    let terminate = Terminate {
        cause: Cause::Llp(LlpError::Crc),
        segment: None,
    };
    both_ways(
        "0016 4147 00000000 00000002 00000001 00000000 20 02 00 00 7fe42585",
        &terminate,
    );
    // Error type 3 is read as the same cause; type 0 is emitted.
    let hardware = "0016 4147 00000000 00000002 00000001 00000000 23 02 00 00 466d07e7";
    assert_eq!(parse(hardware), terminate);
}

/// Captured from siw on a little-endian host: the Terminate's payload and the frame's checksum.
const CAPTURED: [(Cause, &str, &str); 7] = [
    (
        Cause::Ddp(DdpError::TaggedInvalidStag),
        "11000300 0064 c140cf18d20000007f508d8b8000",
        "36c0ecec",
    ),
    (
        Cause::Ddp(DdpError::TaggedInvalidStag),
        "11000300 0064 c1400e50bd0100007ff2107c4000",
        "a399bc06",
    ),
    (
        Cause::Ddp(DdpError::TaggedBounds),
        "11010300 0064 c140fb6a800000007f189a841fa0",
        "cb0d47e9",
    ),
    (
        Cause::Ddp(DdpError::TaggedInvalidStag),
        "11000300 0064 c140d373f90000007f944c8d4000",
        "7c51742e",
    ),
    (
        Cause::Rdmap(RdmapError::InvalidStag),
        "10000700 0000 414100000000000000010000006400000000
         0a35400000007f2f58fe5000000000649df98a0000007f7d69020000",
        "03cad68d",
    ),
    (
        Cause::Rdmap(RdmapError::Bounds),
        "10010700 0000 414100000000000000010000006400000000
         d9b9690000007fafe7b8e00000000064cc56610000007f984c546fa0",
        "7e4755db",
    ),
    (
        Cause::Ddp(DdpError::UntaggedNoBuffer),
        "21020300 0064 414300000000000000000000000100000000",
        "4b4c42d2",
    ),
];

#[test]
fn captured_siw_terminates_are_parsed() {
    for (cause, payload, crc) in CAPTURED {
        let bytes = hex(payload);
        let header = untagged(Opcode::Terminate, Qn::TERMINATE, 1);
        let head: String = header.emit().iter().map(|b| format!("{b:02x}")).collect();
        let len = Untagged::LEN + bytes.len();
        frame_both_ways(&format!("{len:04x} {head} {payload} {crc}"), header, &bytes);

        let got = Terminate::parse(&bytes, Phase::Running);
        let (terminate, dialect) = got.expect("a terminate message");
        assert_eq!((terminate.cause, dialect), (cause, Dialect::Siw));
        let mut out = Vec::new();
        terminate.emit(Dialect::Siw, &mut out);
        assert_eq!(out, bytes);

        let echo = terminate.segment.expect("a segment");
        let header = echo.header.expect("a header").parse();
        let opcode = header.expect("a sound header").opcode();
        assert_eq!(echo.read_request.is_some(), opcode == Opcode::ReadRequest);
        assert!(echo.read_request.is_none_or(|request| request.size == 100));
    }
}
