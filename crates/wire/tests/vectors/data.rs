//! Frames of the RFC 5040 messages: the Send family in one and two segments, Write, Read, and the
//! zero-length frames that open a connection. All without markers and with checksums.

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::rdmap::{Opcode, ReadRequest};
use verbena_wire::{Mo, Msn, Qn, Stag, To};

use crate::support::{frame_both_ways, hex, ulpdu_of};

fn send(opcode: Opcode, msn: u32) -> Untagged {
    Untagged {
        last: true,
        opcode,
        ulp: 0,
        qn: Qn::SEND,
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    }
}

fn tagged(opcode: Opcode, stag: u32, to: u64) -> Tagged {
    Tagged {
        last: true,
        opcode,
        stag: Stag::new(stag),
        to: To::new(to),
    }
}

#[test]
fn send_hello() {
    frame_both_ways(
        "0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c",
        send(Opcode::Send, 1),
        b"hello",
    );
}

#[test]
fn send_with_invalidate() {
    frame_both_ways(
        "0016 4144 00112233 00000000 00000001 00000000 61626364 66274d9d",
        Untagged {
            ulp: 0x0011_2233,
            ..send(Opcode::SendInv, 1)
        },
        b"abcd",
    );
}

#[test]
fn send_with_solicited_event_and_no_payload() {
    frame_both_ways(
        "0012 4145 00000000 00000000 00000002 00000000 9f746d49",
        send(Opcode::SendSe, 2),
        b"",
    );
}

#[test]
fn send_with_solicited_event_and_invalidate() {
    frame_both_ways(
        "0013 4146 deadbe01 00000000 00000003 00000000 78 000000 d60c39c1",
        Untagged {
            ulp: 0xdead_be01,
            ..send(Opcode::SendSeInv, 3)
        },
        b"x",
    );
}

#[test]
fn send_in_two_segments() {
    frame_both_ways(
        "0026 0143 00000000 00000000 00000005 00000000 41*20 7c4d8b2e",
        Untagged {
            last: false,
            ..send(Opcode::Send, 5)
        },
        &[b'A'; 20],
    );
    frame_both_ways(
        "0019 4143 00000000 00000000 00000005 00000014 42*7 00 3b67fab7",
        Untagged {
            mo: Mo::new(20),
            ..send(Opcode::Send, 5)
        },
        &[b'B'; 7],
    );
}

#[test]
fn write_eight_bytes() {
    frame_both_ways(
        "0016 c140 12345678 0000000000001000 4142434445464748 dbb55cb0",
        tagged(Opcode::Write, 0x1234_5678, 0x1000),
        b"ABCDEFGH",
    );
}

#[test]
fn read_request_and_response() {
    let request = ReadRequest {
        sink_stag: Stag::new(0xaa01),
        sink_to: To::new(0x7f00_0000_2000),
        size: 16,
        source_stag: Stag::new(0x1234_5678),
        source_to: To::new(0x1000),
    };
    let frame = "002e 4141 00000000 00000001 00000002 00000000
        0000aa01 00007f0000002000 00000010 12345678 0000000000001000 48b7645d";
    let header = Untagged {
        qn: Qn::READ_REQUEST,
        ..send(Opcode::ReadRequest, 2)
    };
    frame_both_ways(frame, header, &request.emit());
    let ulpdu = ulpdu_of(&hex(frame));
    assert_eq!(ReadRequest::parse(&ulpdu[Untagged::LEN..]), Ok(request));

    let bytes: Vec<u8> = (0..16).collect();
    frame_both_ways(
        "001e c142 0000aa01 00007f0000002000 000102030405060708090a0b0c0d0e0f 06396682",
        tagged(Opcode::ReadResponse, 0xaa01, 0x7f00_0000_2000),
        &bytes,
    );
}

#[test]
fn ready_to_receive_frames() {
    // Zero-length Write.
    frame_both_ways(
        "000ec140 00000001 0000000000000000 ebd34c5f",
        tagged(Opcode::Write, 1, 0),
        b"",
    );
    // Zero-length Read and its response.
    let request = ReadRequest {
        sink_stag: Stag::new(0),
        sink_to: To::new(0),
        size: 0,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    };
    let header = Untagged {
        qn: Qn::READ_REQUEST,
        ..send(Opcode::ReadRequest, 1)
    };
    frame_both_ways(
        "002e4141 00000000 00000001 00000001 00000000 00000000 0000000000000000
         00000000 00000001 0000000000000000 ba10e3c9",
        header,
        &request.emit(),
    );
    frame_both_ways(
        "000ec142 00000000 0000000000000000 6975d6ca",
        tagged(Opcode::ReadResponse, 0, 0),
        b"",
    );
    // Zero-length Send.
    frame_both_ways(
        "00124143 00000000 00000000 00000001 00000000 587be8c4",
        send(Opcode::Send, 1),
        b"",
    );
}
