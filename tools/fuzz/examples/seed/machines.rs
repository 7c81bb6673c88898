//! Seeds of the state machine targets: startups, received streams and programs for a pair, in the input layouts of those targets.
//! Each is a short conforming run; mutation derives others from them.

use crate::{Seed, codecs};

/// Switches, terms (flags, RTR kinds, IRD, ORD), plan (flags, chunk, IRD, ORD, answer length), then bytes.
pub(crate) fn startups() -> Vec<Seed> {
    const TERMS: [u8; 6] = [0x1a, 0x06, 0, 16, 0, 16];
    const PLAN: [u8; 8] = [0x01, 6, 0, 8, 0, 8, 0, 4];
    let alone = |switches: u8, frame: &[u8]| [&[switches][..], &TERMS, &PLAN, frame].concat();
    let mut frames = codecs::startup_frames().into_iter();
    let mut frame = || frames.next().expect("five frames").1;
    let (request_1, request_2, reply_1, reply_2) = (frame(), frame(), frame(), frame());
    let pair = |theirs: [u8; 6]| [&[1][..], &TERMS, &PLAN, &theirs, b"hello"].concat();
    vec![
        ("request-1", alone(0, &request_1)),
        ("request-2", alone(0, &request_2)),
        ("reply-1", alone(2, &reply_1)),
        ("reply-2", alone(2, &reply_2)),
        (
            "early-bytes",
            [alone(0, &request_1), b"x".to_vec()].concat(),
        ),
        (
            "reply-and-stream",
            [alone(2, &reply_2), b"first".to_vec()].concat(),
        ),
        ("given-key", alone(4, &request_2[16..])),
        ("pair-verbena", pair(TERMS)),
        ("pair-standard", pair([0x0c, 0x04, 0, 1, 0, 1])),
    ]
}

/// Mode, rules, RTR kinds, chunk, reads, kinds of reads, four answers to claims, then a script.
pub(crate) fn streams() -> Vec<Seed> {
    const CRC: u8 = 1;
    const MARKERS: u8 = 2;
    const OPENED: u8 = 4;
    const FRAMED: u8 = 8;
    const DIRECT: u8 = 16;
    /// Extensions with both features.
    const VERBENA: u8 = 0x0d;
    const RFC7306: u8 = 2;
    let framed = |mode: u8, rules: u8, reads: [u8; 2], claims: [u8; 4], script: &[u8]| {
        let head = [mode | FRAMED, rules, 7, 6, reads[0], reads[1]];
        [&head[..], &claims, script].concat()
    };
    let granted = [0; 4];
    // Opcode by its place in `Opcode::ALL`, flags, length.
    let write_and_send = [0, 1, 200, 0, 0, 100, 3, 1, 64, 3, 0, 64];
    // Two ACKs of no request (kind 2, number 0) around a Send with immediate.
    let verbena = [18, 0, 0, 2, 0, 14, 0, 30, 18, 0, 0, 2, 0];
    // A Send answered with RNR, another discarded, RESUME(0), the first sent again.
    let refused = [3, 0, 8, 3, 0, 8, 18, 0, 0, 5, 0, 3, 0, 8];
    let raw = [&[CRC, 0, 0, 6, 0, 0, 0, 0, 0, 0][..], &[0, 14, 0xc1, 0x40]].concat();
    vec![
        (
            "write-and-send",
            framed(CRC, 0, [0, 0], granted, &write_and_send),
        ),
        (
            "markers",
            framed(
                MARKERS | DIRECT,
                0,
                [0, 0],
                granted,
                &[0, 0x20, 200, 3, 0x20, 90],
            ),
        ),
        (
            "crc-and-markers",
            framed(CRC | MARKERS, 0, [0, 0], granted, &write_and_send),
        ),
        (
            "verbena",
            framed(OPENED, VERBENA, [0, 0], granted, &verbena),
        ),
        (
            "not-ready",
            framed(OPENED, VERBENA, [0, 0], [2, 0, 0, 0], &refused),
        ),
        (
            "read-response",
            framed(OPENED | DIRECT, 0, [1, 0], granted, &[2, 1, 8, 2, 0, 8]),
        ),
        (
            "read-v2-response",
            framed(OPENED, VERBENA, [1, 1], granted, &[13, 0, 16]),
        ),
        (
            "atomic-response",
            framed(OPENED, VERBENA, [1, 2], granted, &[11, 0, 0, 0]),
        ),
        (
            "requests",
            framed(
                0,
                RFC7306,
                [0, 0],
                granted,
                &[1, 0, 9, 10, 0, 0, 0, 8, 0, 0],
            ),
        ),
        (
            "rtr-write",
            framed(OPENED, 0x30, [0, 0], granted, &write_and_send),
        ),
        (
            "terminate",
            framed(0, 0, [0, 0], granted, &[7, 0, 4, 0x20, 2, 0, 0]),
        ),
        (
            "dropped-and-refused",
            framed(0, 0, [0, 0], [3; 4], &[3, 0, 9, 0, 16, 9, 0, 0, 16, 9, 1]),
        ),
        ("raw-write", raw),
    ]
}

/// Mode, segment size, then operations: the input layout of `pair`.
pub(crate) fn programs() -> Vec<Seed> {
    // Both CAPS, in both directions.
    const OPEN: [u8; 4] = [0x02, 0x07, 0x82, 0x87];
    let verbena = |program: &[u8]| [&[1, 0][..], &OPEN, program].concat();
    vec![
        (
            "sends",
            verbena(&[0x84, 0, 6, 40, 0, 6, 0xff, 1, 1, 1, 7, 0x82, 0x87]),
        ),
        (
            "not-ready",
            verbena(&[0, 6, 9, 1, 7, 0x82, 0x87, 0x84, 0x82, 0x87, 2, 1, 7]),
        ),
        (
            "reads",
            verbena(&[
                0, 3, 9, 0, 4, 0x90, 0, 5, 0, 1, 1, 1, 7, 0x85, 0x85, 0x85, 0x87,
            ]),
        ),
        (
            "both-ways",
            verbena(&[0, 0, 0x90, 0x80, 1, 0x90, 1, 0x81, 3, 9, 0x83, 9, 1, 0x81]),
        ),
        ("dropped", verbena(&[0x8e, 0, 6, 9, 0, 2, 0, 1, 1, 7])),
        ("ended", verbena(&[0, 6, 9, 1, 0x7f, 7, 0x82, 0x87])),
        (
            "standard",
            vec![0x0e, 20, 0, 0, 0x90, 0, 3, 50, 1, 7, 0x85, 0x87],
        ),
        (
            "standard-rtr-read",
            vec![0x22, 0, 2, 7, 0x85, 0x87, 0, 6, 1, 1, 7],
        ),
    ]
}

/// Mode, RTR bits, packet size, disorder, length of the initiator's script, both scripts; or a whole capture file.
pub(crate) fn captures() -> Vec<Seed> {
    let script = |mode: u8, cut: u8, disorder: u8| {
        let there = [0, 1, 200, 0, 0, 100, 3, 0, 64, 1, 0, 9];
        let back = [2, 0, 9, 3, 0, 30];
        let head = [mode, 0, cut, disorder, there.len() as u8];
        [&head[..], &there, &back].concat()
    };
    // An iSCSI connection: direction, length of the data, a header and the data.
    let disk = |terms: u8, cut: u8| {
        let pdu = |how: u8, first: [u8; 4], data: &[u8]| {
            let mut head = [0; 48];
            head[..4].copy_from_slice(&first);
            head[19] = 4;
            head[32] = 0x28;
            [&[how, data.len() as u8], &head[..], data].concat()
        };
        let command = pdu(0, [0x01, 0xc1, 0, 0], &[]);
        let data = pdu(1, [0x25, 0x81, 0, 0], &[7; 66]);
        let ping = pdu(4, [0x40, 0x80, 0, 0], b"ping");
        [vec![0x43, terms, cut, 0], command, data, ping].concat()
    };
    let rping = include_bytes!("../../../cli/tests/fixtures/03_rping_v1_nocrc.pcap");
    let reject = include_bytes!("../../../cli/tests/fixtures/17_reject_crc.pcap");
    vec![
        ("plain", script(0, 255, 0)),
        ("crc-and-markers", script(0x0e, 255, 0)),
        ("revision-1", script(0x42, 60, 0)),
        ("disordered", script(2, 40, 0x52)),
        ("verbena-without-caps", script(0x32, 255, 0)),
        ("disk", disk(0, 255)),
        ("disk-with-digests", disk(3, 30)),
        ("rping", rping.to_vec()),
        ("reject", reject.to_vec()),
    ]
}
