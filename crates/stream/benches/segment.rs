//! Instructions per segment of 64 bytes, to be counted by callgrind; docs/performance.md has the commands and the numbers.
//! The program runs one fixed scenario, `segment rx|tx write|send crc|plain N`, and measures nothing itself: the difference between the
//! counts of two runs is the cost of their difference in N.

#![allow(missing_docs, reason = "a program, not a library")]

mod common;

use std::hint::black_box;

use common::{Kind, Mode, receive, stream, transmit, wire};

/// Payload of each segment.
const LEN: u32 = 64;
/// Segments that are prepared once; a new stream receives them repeatedly.
const BATCH: usize = 1000;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut next = || args.next().unwrap_or_default();
    let (side, kind, crc, count) = (next(), next(), next(), next());
    let count: usize = count.parse().unwrap_or(BATCH);
    let kind = if kind == "send" {
        Kind::Send
    } else {
        Kind::Write
    };
    let mode = Mode {
        crc: crc == "crc",
        markers: false,
        copy: true,
    };
    match side.as_str() {
        "rx" => rx(kind, mode, count),
        "tx" => tx(kind, mode, count),
        _ => println!("usage: segment rx|tx write|send crc|plain N (a multiple of {BATCH})"),
    }
}

fn rx(kind: Kind, mode: Mode, count: usize) {
    let bytes = wire(kind, mode, LEN, BATCH);
    let mut memory = vec![0; LEN as usize];
    for _ in 0..count / BATCH {
        let mut stream = stream(mode);
        let delivered = receive(&mut stream, mode, black_box(&bytes), &mut memory);
        assert_eq!(delivered, BATCH);
    }
    black_box(memory);
}

fn tx(kind: Kind, mode: Mode, count: usize) {
    let payload = vec![0xa5; LEN as usize];
    let mut stream = stream(mode);
    let look = |stage: &[u8]| {
        black_box(stage);
    };
    transmit(&mut stream, kind, mode, black_box(&payload), count, look);
}
