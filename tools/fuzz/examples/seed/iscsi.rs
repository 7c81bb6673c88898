//! Seeds of the target `iscsi_qp`: short exchanges with a conforming target, in the input layout of that target.
//! Each has receives, commands and the target's responses; mutation derives other exchanges from them.

use crate::Seed;

/// The step that posts eight receives.
const RECEIVES: &[u8] = &[1, 7];
/// The step that starts the send queue again.
const RESTART: &[u8] = &[3];

/// The step that posts a command: direction (0 none, 1 write, 2 read), zone, bytes.
fn command(direction: u8, zone: u8, len: u16) -> Vec<u8> {
    [&[0, direction << 6 | zone][..], &len.to_be_bytes()].concat()
}

/// The step in which the target sends a PDU: its kind, the task tag counted from the last one back, a third of its length.
fn send_pdu(kind: u8, tag: u8, thirds: u8) -> Vec<u8> {
    vec![5, kind, tag, thirds]
}

const DATA_IN: u8 = 0x00;
const DATA_IN_STATUS: u8 = 0x10;
const R2T: u8 = 0x0a;
const RESPONSE: u8 = 0x0c;
const NOP: u8 = 0x0e;

fn read(switches: u8) -> Vec<u8> {
    let steps = [
        vec![switches],
        RECEIVES.to_vec(),
        command(2, 3, 300),
        send_pdu(DATA_IN, 0, 50),
        // At offset 150.
        [send_pdu(DATA_IN_STATUS | 0x20, 0, 50), vec![0, 150]].concat(),
    ];
    steps.concat()
}

fn write(switches: u8) -> Vec<u8> {
    let steps = [
        vec![switches],
        RECEIVES.to_vec(),
        command(1, 4, 400),
        send_pdu(R2T, 0, 60),
        send_pdu(R2T, 0, 60),
        send_pdu(RESPONSE, 0, 0),
    ];
    steps.concat()
}

fn several() -> Vec<u8> {
    let steps = [
        vec![0x18],
        RECEIVES.to_vec(),
        command(1, 1, 500),
        send_pdu(NOP, 0, 2),
        command(2, 2, 99),
        command(0, 0, 0),
        send_pdu(DATA_IN, 1, 33),
        send_pdu(R2T, 2, 90),
        send_pdu(RESPONSE, 0, 5),
        send_pdu(RESPONSE, 1, 0),
        send_pdu(RESPONSE, 2, 0),
        RESTART.to_vec(),
        vec![2, 0x45],
    ];
    steps.concat()
}

/// One seed per exchange.
pub(crate) fn conversations() -> Vec<Seed> {
    vec![
        ("read", read(0)),
        ("read-digests", read(3)),
        ("write-asked", write(0x08)),
        ("write-immediate", write(0x0c)),
        ("write-unsolicited-digests", write(0x37)),
        ("several", several()),
    ]
}
