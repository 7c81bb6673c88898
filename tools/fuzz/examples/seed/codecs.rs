//! Seeds of the codec targets: one of each header and message, as a conforming peer would send it.
//! They are built by the codecs, so that they follow changes of a format.

use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{Caps, Control, Features, Personality, QpType, ReadV2Request, RnrTimer};
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER, Flags, Frame, Kind, Revision};
use verbena_wire::mpa::{Depth, Enhanced, RtrKinds};
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, DdpError, Dialect, Echo, EchoHeader,
    FlushScope, Immediate, LlpError, Opcode, RdmapError, ReadRequest, Terminate,
};
use verbena_wire::roce::UdPacket;
use verbena_wire::{Mo, Msn, Psn, Qn, Qpn, Rsn, Srqn, Stag, To};

use crate::Seed;

pub(crate) fn startup_frames() -> Vec<Seed> {
    let flags = |crc, reject, reserved| Flags {
        markers: false,
        crc,
        reject,
        reserved,
    };
    let block = Enhanced {
        ird: Depth::new(16).expect("small"),
        ord: Depth::NOT_NEGOTIATED,
        peer_to_peer: true,
        rtr: RtrKinds {
            send: true,
            write: true,
            read: false,
        },
    };
    let frame = |kind, revision, flags, block, data| {
        let mut out = Vec::new();
        let frame = Frame::new(kind, revision, flags, block, data).expect("can be sent");
        frame.emit(&mut out);
        out
    };
    use Kind::{Reply, Request};
    use Revision::{One, Two};
    vec![
        (
            "request-1",
            frame(Request, One, flags(true, false, 0), None, b""),
        ),
        (
            "request-2",
            frame(
                Request,
                Two,
                flags(true, false, EXT_OFFER),
                Some(block),
                b"hello",
            ),
        ),
        (
            "reply-1",
            frame(Reply, One, flags(false, true, 0), None, b"no"),
        ),
        (
            "reply-2",
            frame(Reply, Two, flags(true, false, EXT_AGREE), Some(block), b""),
        ),
        (
            "request-longest",
            frame(Request, Two, flags(true, false, 0), Some(block), &[7; 508]),
        ),
    ]
}

pub(crate) fn untagged(opcode: Opcode) -> Untagged {
    Untagged {
        last: true,
        opcode,
        ulp: 0x0200_0005,
        qn: opcode.qn().unwrap_or(Qn::SEND),
        msn: Msn::FIRST,
        mo: Mo::ZERO,
    }
}

pub(crate) fn tagged(opcode: Opcode) -> Tagged {
    Tagged {
        last: true,
        opcode,
        stag: Stag::new(0x1234_5678),
        to: To::new(0x7f00_0000_1000),
    }
}

fn header(opcode: Opcode) -> Header {
    if opcode.tagged() {
        tagged(opcode).into()
    } else {
        untagged(opcode).into()
    }
}

pub(crate) fn ddp() -> Vec<Seed> {
    let seeds = Opcode::ALL.map(|opcode| (opcode.name(), header(opcode).emit().to_vec()));
    seeds.into()
}

pub(crate) fn read_request() -> ReadRequest {
    ReadRequest {
        sink_stag: Stag::new(0xaa01),
        sink_to: To::new(0x7f00_0000_2000),
        size: 16,
        source_stag: Stag::new(0x1234_5678),
        source_to: To::new(0x1000),
    }
}

pub(crate) fn rdmap() -> Vec<Seed> {
    let atomic = |op| AtomicRequest {
        op,
        id: 9,
        stag: Stag::new(0x1234_5678),
        to: To::new(0x1000),
    };
    let add = AtomicOp::FetchAdd {
        add: 0x0101,
        mask: 0x8000,
    };
    let swap = AtomicOp::CmpSwap {
        swap: 1,
        swap_mask: u64::MAX,
        compare: 0,
        compare_mask: u64::MAX,
    };
    let write = AtomicOp::Write { bytes: [7; 8] };
    let range = AtomicOp::Flush(FlushScope::Range { len: 64 });
    let region = AtomicOp::Flush(FlushScope::Region);
    let v2 = ReadV2Request {
        size: 16,
        source_stag: Stag::new(0x1234_5678),
        source_to: To::new(0x1000),
    };
    let response = AtomicResponse {
        id: 9,
        original: 42,
    };
    vec![
        ("read-request", read_request().emit().into()),
        ("read-v2-request", v2.emit().into()),
        ("fetch-add", [&atomic(add).emit()[..], &[0xff; 8]].concat()),
        ("cmp-swap", [&atomic(swap).emit()[..], &[0; 8]].concat()),
        (
            "atomic-write",
            [&atomic(write).emit()[..], &[0; 8]].concat(),
        ),
        ("flush-range", [&atomic(range).emit()[..], &[0; 8]].concat()),
        (
            "flush-region",
            [&atomic(region).emit()[..], &[0; 8]].concat(),
        ),
        ("atomic-response", response.emit().into()),
        ("immediate", Immediate::from_imm(7).emit().into()),
    ]
}

pub(crate) fn terminates() -> Vec<Seed> {
    let echo = |opcode, read_request| Echo {
        segment_len: 46,
        header: Some(EchoHeader::from(header(opcode))),
        read_request,
    };
    let terminate = |cause, segment, dialect| {
        let mut out = Vec::new();
        Terminate { cause, segment }.emit(dialect, &mut out);
        out
    };
    let read = Some(echo(Opcode::ReadRequest, Some(read_request())));
    let write = Some(echo(Opcode::Write, None));
    let bounds = Cause::Rdmap(RdmapError::Bounds);
    let stag = Cause::Ddp(DdpError::TaggedInvalidStag);
    vec![
        ("read-rfc", terminate(bounds, read, Dialect::Rfc)),
        ("read-siw", terminate(bounds, read, Dialect::Siw)),
        ("write-rfc", terminate(stag, write, Dialect::Rfc)),
        ("write-siw", terminate(stag, write, Dialect::Siw)),
        (
            "crc",
            terminate(Cause::Llp(LlpError::Crc), None, Dialect::Rfc),
        ),
        (
            "rtr",
            terminate(Cause::Llp(LlpError::NoMatchingRtr), None, Dialect::Rfc),
        ),
    ]
}

pub(crate) fn caps() -> Caps {
    Caps {
        version: Caps::VERSION,
        max_ulpdu: 1442,
        features: Features::READ_V2 | Features::SEND_IMM,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(12).expect("in range"),
        ird: 16,
        nonce: 7,
        same_host: Some([3; 16]),
        path: None,
    }
}

pub(crate) fn controls() -> Vec<Seed> {
    let n = Rsn::wrapping(5);
    let timer = RnrTimer::new(12).expect("in range");
    let all = [
        ("caps", Control::Caps(caps())),
        ("ack", Control::Ack(n)),
        ("rnr", Control::Rnr { rsn: n, timer }),
        ("ready", Control::Ready(n)),
        ("resume", Control::Resume(n)),
        (
            "active",
            Control::Active {
                psn: Psn::wrapping(9),
            },
        ),
        ("srq", Control::Srq(Srqn::wrapping(6))),
    ];
    all.map(|(name, control)| {
        let mut out = control.ulp_word().to_be_bytes().to_vec();
        control.emit_payload(&mut out);
        (name, out)
    })
    .into()
}

pub(crate) fn datagrams() -> Vec<Seed> {
    let packet = |immediate, payload| {
        let mut out = Vec::new();
        let packet = UdPacket {
            dest_qpn: Qpn::wrapping(17),
            src_qpn: Qpn::wrapping(18),
            qkey: 0x1111_1111,
            pkey: 0xffff,
            psn: Psn::wrapping(3),
            solicited: true,
            immediate,
            payload,
        };
        packet.emit(&mut out);
        out.extend([1, 2, 3, 4]);
        out
    };
    vec![
        ("send", packet(None, b"hello")),
        ("send-imm", packet(Some([0, 0, 0, 9]), b"hello, world")),
        ("empty", packet(None, b"")),
        ("icrc", (0..90).collect()),
    ]
}

/// Switches, phase, repetition, ULPDU: the input layout of `fpdu`.
pub(crate) fn fpdus() -> Vec<Seed> {
    let input = |switches: u8, phase: u16, stretch: u8, len: u8| {
        let [high, low] = phase.to_be_bytes();
        let mut out = vec![switches, high, low, stretch];
        out.extend(0..len);
        out
    };
    vec![
        ("plain", input(2, 0xffff, 0, 30)),
        ("first-frame", input(2, 0, 0, 30)),
        ("marker-before-crc", input(2, 32, 0, 30)),
        ("many-markers", input(0xf3, 100, 100, 200)),
        ("longest", input(0xf3, 508, 255, 255)),
    ]
}
