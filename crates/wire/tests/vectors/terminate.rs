//! Terminate frames: a refused Write, a refused Read Request with its header, and a checksum error
//! as RFC 6581 and as hardware adapters write it.

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
    // Error type 3 reads alike; type 0 is what we write.
    let hardware = "0016 4147 00000000 00000002 00000001 00000000 23 02 00 00 466d07e7";
    assert_eq!(parse(hardware), terminate);
}
