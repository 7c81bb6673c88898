//! Frames of the RFC 7306 messages: both atomics, their response, and immediate data; and two control messages of docs/extensions.md.

use verbena_wire::ddp::Untagged;
use verbena_wire::ext::Control;
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, FlushScope, Immediate, Opcode};
use verbena_wire::{Mo, Msn, Qn, Rsn, Srqn, Stag, To};

use crate::support::{frame_both_ways, hex, ulpdu_of};

fn header(opcode: Opcode, msn: u32) -> Untagged {
    Untagged {
        last: true,
        opcode,
        ulp: 0,
        qn: opcode.qn().expect("untagged"),
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    }
}

fn payload_of(frame: &str) -> Vec<u8> {
    ulpdu_of(&hex(frame)).split_off(Untagged::LEN)
}

fn request(op: AtomicOp, id: u32) -> AtomicRequest {
    AtomicRequest {
        op,
        id,
        stag: Stag::new(0x1234_5678),
        to: To::new(0x1000),
    }
}

#[test]
fn control_messages() {
    // The frames of docs/extensions.md.
    let ack = "0012 414f 02000005 00000005 00000003 00000000 100cd402";
    let srq = "0012 414f 08000007 00000005 00000002 00000000 5c517033";
    for (frame, control, msn) in [
        (ack, Control::Ack(Rsn::wrapping(5)), 3),
        (srq, Control::Srq(Srqn::wrapping(7)), 2),
    ] {
        let header = Untagged {
            ulp: control.ulp_word(),
            ..header(Opcode::Control, msn)
        };
        frame_both_ways(frame, header, &[]);
        assert_eq!(Control::parse(header.ulp, &payload_of(frame)), Ok(control));
    }
}

#[test]
fn fetch_add() {
    let frame = "0046 414a 00000000 00000001 00000003 00000000
        00000000 00000011 12345678 0000000000001000
        0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff a2945ab3";
    let request = request(AtomicOp::FetchAdd { add: 5, mask: 0 }, 0x11);
    frame_both_ways(frame, header(Opcode::AtomicRequest, 3), &request.emit());
    assert_eq!(AtomicRequest::parse(&payload_of(frame)), Ok(request));
}

#[test]
fn atomic_response() {
    let frame = "001e 414b 00000000 00000003 00000001 00000000
        00000011 000000000000002a c093aabd";
    let response = AtomicResponse {
        id: 0x11,
        original: 0x2a,
    };
    assert_eq!(Opcode::AtomicResponse.qn(), Some(Qn::ATOMIC_RESPONSE));
    frame_both_ways(frame, header(Opcode::AtomicResponse, 1), &response.emit());
    assert_eq!(AtomicResponse::parse(&payload_of(frame)), Ok(response));
}

#[test]
fn compare_and_swap() {
    let frame = "0046 414a 00000000 00000001 00000004 00000000
        00000002 00000012 12345678 0000000000001000
        0000000000000009 ffffffffffffffff 0000000000000007 ffffffffffffffff e787fed3";
    let op = AtomicOp::CmpSwap {
        swap: 9,
        swap_mask: u64::MAX,
        compare: 7,
        compare_mask: u64::MAX,
    };
    let request = request(op, 0x12);
    frame_both_ways(frame, header(Opcode::AtomicRequest, 4), &request.emit());
    assert_eq!(AtomicRequest::parse(&payload_of(frame)), Ok(request));
    assert_eq!((request.op.apply(7), request.op.apply(8)), (9, 8));
}

#[test]
fn atomic_write() {
    let frame = "0046 414a 00000000 00000001 00000005 00000000
        0000000f 00000013 12345678 0000000000001000
        0102030405060708 0000000000000000 0000000000000000 0000000000000000 53295125";
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
    let request = request(AtomicOp::Write { bytes }, 0x13);
    frame_both_ways(frame, header(Opcode::AtomicRequest, 5), &request.emit());
    assert_eq!(AtomicRequest::parse(&payload_of(frame)), Ok(request));
}

#[test]
fn flush_of_a_range_and_of_a_region() {
    let range = "0046 414a 00000000 00000001 00000006 00000000
        0000000e 00000014 12345678 0000000000001000
        0000000000000040 0000000000000001 0000000000000000 0000000000000000 d40ebce1";
    let region = "0046 414a 00000000 00000001 00000007 00000000
        0000000e 00000015 12345678 0000000000001000
        0000000000000000 0000000000000001 0000000000000001 0000000000000000 914a5eae";
    for (frame, scope, id, msn) in [
        (range, FlushScope::Range { len: 64 }, 0x14, 6),
        (region, FlushScope::Region, 0x15, 7),
    ] {
        let request = request(AtomicOp::Flush(scope), id);
        frame_both_ways(frame, header(Opcode::AtomicRequest, msn), &request.emit());
        assert_eq!(AtomicRequest::parse(&payload_of(frame)), Ok(request));
    }
}

#[test]
fn immediate_data() {
    let frame = "001a 4148 00000000 00000000 00000004 00000000 1122334455667788 0ba77a64";
    let immediate = Immediate {
        data: 0x1122_3344_5566_7788_u64.to_be_bytes(),
    };
    frame_both_ways(frame, header(Opcode::Immediate, 4), &immediate.emit());
    assert_eq!(Immediate::parse(&payload_of(frame)), Ok(immediate));
    assert_eq!(immediate.imm(), 0x1122_3344);
}
