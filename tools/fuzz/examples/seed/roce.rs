//! Seeds of the RoCEv2 targets: one packet of each operation, exchanges with a queue pair, and messages of the connection manager.
//! Packets are built by the codec; exchanges have the input layout of their target.

use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{
    Aeth, AtomicEth, Deth, Nak, Operation, Packet, Psn, Qpn, Reth, Service, Syndrome, Tail,
};
use verbena_wire::{Stag, To};

use crate::Seed;

const RETH: Reth = Reth {
    va: To::new(0x1000),
    rkey: Stag::new(0x1234),
    len: 5,
};
const ATOMIC: AtomicEth = AtomicEth {
    va: To::new(0x1008),
    rkey: Stag::new(0x1234),
    swap_or_add: 1,
    compare: 2,
};
const DETH: Deth = Deth {
    qkey: 0x8001_0000,
    src_qpn: Qpn::wrapping(1),
};

fn packet(operation: Operation, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = Packet {
        payload,
        ack_request: true,
        ..Packet::new(operation, Qpn::wrapping(17), Psn::wrapping(0xff_ffff))
    };
    packet.emit(&mut bytes);
    bytes.extend([1, 2, 3, 4]);
    bytes
}

/// One packet of each operation.
pub(crate) fn packets() -> Vec<Seed> {
    let (rc, uc) = (Service::Rc, Service::Uc);
    let immediate = [0, 0, 0, 9];
    let aeth = |syndrome| Aeth { syndrome, msn: 3 };
    let ack = aeth(Syndrome::ACK);
    let cnp = Packet::CNP_PAYLOAD;
    vec![
        ("send-first", packet(Operation::SendFirst(rc), &[7; 256])),
        ("send-middle", packet(Operation::SendMiddle(uc), &[7; 256])),
        (
            "send-last",
            packet(Operation::SendLast(rc, Tail::Plain), b"end"),
        ),
        (
            "send-only-imm",
            packet(
                Operation::SendOnly(uc, Tail::Immediate(immediate)),
                b"hello",
            ),
        ),
        (
            "send-only-inv",
            packet(
                Operation::SendOnly(rc, Tail::Invalidate(RETH.rkey)),
                b"hello",
            ),
        ),
        (
            "write-first",
            packet(Operation::WriteFirst(rc, RETH), &[7; 256]),
        ),
        (
            "write-middle",
            packet(Operation::WriteMiddle(rc), &[7; 256]),
        ),
        (
            "write-last-imm",
            packet(Operation::WriteLast(uc, Some(immediate)), b"end"),
        ),
        (
            "write-only-imm",
            packet(Operation::WriteOnly(rc, RETH, Some(immediate)), b"hello"),
        ),
        ("read", packet(Operation::ReadRequest(RETH), b"")),
        (
            "read-response-first",
            packet(Operation::ReadResponseFirst(ack), &[7; 256]),
        ),
        (
            "read-response-middle",
            packet(Operation::ReadResponseMiddle, &[7; 256]),
        ),
        (
            "read-response-only",
            packet(Operation::ReadResponseOnly(ack), b"hello"),
        ),
        ("ack", packet(Operation::Acknowledge(ack), b"")),
        (
            "nak",
            packet(
                Operation::Acknowledge(aeth(Syndrome::Nak(Nak::RemoteAccess))),
                b"",
            ),
        ),
        (
            "rnr-nak",
            packet(
                Operation::Acknowledge(aeth(Syndrome::RnrNak(RnrTimer::DEFAULT))),
                b"",
            ),
        ),
        (
            "atomic-ack",
            packet(Operation::AtomicAcknowledge(ack, 5), b""),
        ),
        ("cmp-swap", packet(Operation::CmpSwap(ATOMIC), b"")),
        ("fetch-add", packet(Operation::FetchAdd(ATOMIC), b"")),
        (
            "datagram",
            packet(Operation::Datagram(DETH, Some(immediate)), &[0; 256]),
        ),
        ("cnp", packet(Operation::CongestionNotification, &cnp)),
    ]
}

/// The step that posts a receive.
const RECEIVE: &[u8] = &[0];
/// The step that lets a deadline pass.
const TIMEOUT: &[u8] = &[2];

/// The step that posts a request: 0 Send, 1 Write, 2 Read, 4 atomic.
fn post(kind: u8) -> Vec<u8> {
    vec![1, kind]
}

/// The step in which the peer sends the next packet of its requests: opcode, its length (0 one MTU, 64 none), memory.
fn request(opcode: u8, len: u8, memory: &[u8]) -> Vec<u8> {
    [&[7, opcode, 0x1a, 0, len][..], memory].concat()
}

/// The step in which it answers: opcode, packets from the first on, syndrome.
fn answer(opcode: u8, at: u8, len: u8, syndrome: u8) -> Vec<u8> {
    vec![7, opcode, 0x2a, at, len, syndrome, 1]
}

/// Exchanges of both services.
pub(crate) fn conversations() -> Vec<Seed> {
    // The first region, its beginning, and the length of the payload.
    let open = [0, 0, 0, 0, 0, 0];
    let sends = |switches: u8| {
        let steps = [
            vec![switches],
            RECEIVE.to_vec(),
            RECEIVE.to_vec(),
            request(0x00, 0, &[]),
            request(0x01, 0, &[]),
            request(0x02, 200, &[]),
            request(0x05, 200, &[]),
            request(0x04, 64, &[]),
        ];
        steps.concat()
    };
    let writes = |switches: u8| {
        let steps = [
            vec![switches],
            RECEIVE.to_vec(),
            request(0x0a, 200, &open),
            request(0x0b, 0, &open),
            // Memory of another domain.
            request(0x0a, 200, &[2, 0, 0, 0, 0, 0]),
        ];
        steps.concat()
    };
    let reads = [
        vec![0],
        vec![7, 0x0c, 0x0a, 0, 64, 0, 0, 0, 1, 2, 0],
        request(0x14, 64, &open),
        vec![5],
        vec![5],
        TIMEOUT.to_vec(),
    ];
    let answers = [
        vec![0],
        post(0),
        post(2),
        post(4),
        answer(0x11, 2, 64, 31),
        answer(0x0d, 3, 0, 31),
        vec![7, 0x0e, 0x02, 4, 0],
        answer(0x0f, 5, 88, 31),
        answer(0x12, 6, 64, 31),
    ];
    let refusals = [
        vec![4],
        post(1),
        answer(0x11, 0, 64, 0x2e),
        TIMEOUT.to_vec(),
        answer(0x11, 1, 64, 0x60),
        answer(0x11, 1, 64, 0x62),
    ];
    let silence = [vec![2], post(1), post(2), TIMEOUT.repeat(40)];
    vec![
        ("sends", sends(0)),
        ("sends-uc", sends(1)),
        ("writes", writes(0)),
        ("writes-uc", writes(1)),
        ("reads", reads.concat()),
        ("answers", answers.concat()),
        ("refusals", refusals.concat()),
        ("silence", silence.concat()),
        ("raw", [&[0, 4, 60][..], &packets()[4].1].concat()),
    ]
}

/// The step in which a message arrives with the right identifiers and transaction.
fn message(attribute: u8, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u8;
    [&[5, attribute - 0x10, 6, len][..], body].concat()
}

/// Exchanges of the connection manager, from either side.
pub(crate) fn messages() -> Vec<Seed> {
    let rep = [
        0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0, 200, 0, 4, 4, 0, 0xf0,
    ];
    let active = [
        vec![1],
        message(0x11, &[0, 20 << 3]),
        message(0x13, &rep),
        message(0x13, &rep),
        vec![2],
        message(0x16, &[]),
    ];
    let passive = [
        vec![0],
        message(0x10, &[]),
        vec![0],
        message(0x14, &[]),
        message(0x15, &[0, 0, 0x22, 0]),
        message(0x15, &[0, 0, 0x22, 0]),
    ];
    let rejected = [vec![1], message(0x12, &[0, 0, 0, 28])];
    let unanswered = [vec![1], vec![4; 6]];
    let rejects = [vec![0], vec![1, 1, 2, 3, 4], message(0x10, &[])];
    vec![
        ("active", active.concat()),
        ("passive", passive.concat()),
        ("rejected", rejected.concat()),
        ("unanswered", unanswered.concat()),
        ("rejects", rejects.concat()),
        ("sidr", [&[0x17][..], &[3; 60]].concat()),
        ("req", [&[0x10][..], &[3; 232]].concat()),
    ]
}
