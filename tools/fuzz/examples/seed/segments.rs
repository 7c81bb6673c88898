//! Seeds of the target `qp_segments`: streams whose frames arrive behind each other, in reverse, or in part.
//! They have the input layout of the target: switches, the number of frames and their fields, then steps.

use crate::Seed;

/// With checksums, with markers, with segments that begin with frames.
const CRC: u8 = 1;
const MARKERS: u8 = 2;
const ALIGNED: u8 = 4;
const POST: [u8; 2] = [0, 0];
/// One whole frame arrives, of the number that follows.
const ARRIVES: u8 = 32;

/// Two Sends, a Write, a read request and a Send of two segments.
const FRAMES: [u8; 19] = [
    6, 0, 40, 4, 200, 0, 8, 0, 3, 26, 0, 100, 0, 0, 50, 8, 16, 0, 16,
];

fn arrivals(switches: u8, order: &[u8]) -> Vec<u8> {
    let mut bytes = vec![switches];
    bytes.extend(FRAMES);
    for _ in 0..4 {
        bytes.extend(POST);
    }
    for frame in order {
        bytes.extend([ARRIVES, *frame]);
    }
    bytes
}

/// Orders of arrival.
pub(crate) fn orders() -> Vec<Seed> {
    vec![
        ("in-order", arrivals(CRC | ALIGNED, &[0, 1, 2, 3, 4, 5])),
        ("reversed", arrivals(CRC | ALIGNED, &[5, 4, 3, 2, 1, 0])),
        ("markers", arrivals(CRC | MARKERS, &[2, 1, 4, 3, 0, 5])),
        ("repeated", arrivals(ALIGNED, &[1, 1, 3, 2, 2, 0, 0, 4, 5])),
        ("gap-remains", arrivals(CRC | ALIGNED, &[1, 2, 3, 4, 5])),
    ]
}
