//! Seeds of `tcpip_frame` and `tcpip_segment`: frames of each kind, and short conversations.
//! Frames begin with the byte of switches and the length that the target reads; addresses and checksums are set by the target.

use super::Seed;

/// A frame of `len` bytes with these bytes set, to be sealed.
fn frame(len: u16, bytes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = vec![0; usize::from(len)];
    for &(at, byte) in bytes {
        frame[at] = byte;
    }
    [&[1], &len.to_be_bytes()[..], &frame].concat()
}

pub(crate) fn frames() -> Vec<Seed> {
    let syn = [(35, 9), (37, 80), (46, 0x50), (47, 2), (48, 1)];
    let data = [
        (34, 0),
        (35, 80),
        (36, 3),
        (37, 0xe8),
        (46, 0x50),
        (47, 0x18),
    ];
    let mut arp = frame(
        42,
        &[
            (12, 8),
            (13, 6),
            (15, 1),
            (16, 8),
            (18, 6),
            (19, 4),
            (21, 1),
        ],
    );
    arp[0] = 0;
    arp[3..9].fill(0xff);
    arp[9] = 2;
    arp[25] = 2;
    arp[31..35].copy_from_slice(&[10, 0, 0, 2]);
    arp[41..45].copy_from_slice(&[10, 0, 0, 1]);
    vec![
        ("syn", frame(54, &syn)),
        ("data", frame(70, &data)),
        ("datagram", frame(50, &[(23, 1), (35, 9), (37, 53)])),
        ("closed-port", frame(50, &[(23, 1), (35, 9), (37, 54)])),
        ("echo", frame(50, &[(23, 2), (34, 8)])),
        ("echo-v6", frame(70, &[(11, 1), (20, 2), (54, 128)])),
        (
            "solicitation",
            frame(
                86,
                &[(11, 1), (20, 2), (21, 255), (54, 135), (62, 0xfd), (77, 1)],
            ),
        ),
        (
            "too-big",
            frame(
                70,
                &[(23, 2), (34, 3), (35, 4), (40, 2), (41, 0xff), (42, 0x45)],
            ),
        ),
        ("arp", arp),
        ("twice", [frame(54, &syn), frame(54, &syn)].concat()),
    ]
}

pub(crate) fn segments() -> Vec<Seed> {
    let begin = |settings: u8| [&[settings][..], &[0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9]].concat();
    // A segment in order with 256 bytes, a queue of 4096, an acknowledgement of everything, a timeout.
    let data = [5, 0x04, 0x10, 0, 0x10, 0, 0x10, 0, 0, 0, 1, 0];
    let queue = [0, 0x10, 0];
    let timeout = [2, 0, 100];
    let ahead = [
        5, 0x40, 0x20, 0, 0x10, 0, 0xff, 0xff, 0, 0, 0x10, 0, 5, 0, 1, 0,
    ];
    let close = [4, 0];
    vec![
        ("data", [&begin(0x7a)[..], &data].concat()),
        (
            "queue",
            [&begin(0x7a)[..], &queue, &data, &timeout, &data].concat(),
        ),
        (
            "blocks",
            [&begin(0x6a)[..], &queue, &queue, &ahead, &timeout].concat(),
        ),
        (
            "messages",
            [&begin(0x7e)[..], &[0, 0, 100], &data, &timeout].concat(),
        ),
        (
            "passive",
            [&begin(0xfa)[..], &data, &data, &close, &data].concat(),
        ),
        (
            "close",
            [&begin(0x7a)[..], &queue, &close, &data, &timeout].concat(),
        ),
        (
            "report",
            [&begin(0x7a)[..], &queue, &[3, 0, 2, 0x58, 0, 100], &timeout].concat(),
        ),
        (
            "small-window",
            [&begin(0x78)[..], &data, &[1, 0, 1], &data].concat(),
        ),
    ]
}
