//! Payload throughput of receive and transmit, next to a plain CRC-32C and a plain copy of the same bytes.
//! All cases take turns in every round of one run, so that other load affects them alike; medians and spread are printed.
//! There are no sockets: the bytes are in memory and in the cache.

#![allow(missing_docs, reason = "a program, not a library")]

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Kind, Mode, receive, stream, transmit, wire};
use verbena_wire::crc::crc32c;

const ROUNDS: usize = 31;
/// Payload of one pass.
const PASS: usize = 1 << 20;
/// Passes per measurement.
const PASSES: usize = 8;
/// Payload per segment: that of a Send with a ULPDU of 65535 bytes, one Ethernet frame, and a small message.
const SIZES: [u32; 3] = [65517, 1442, 64];

/// A name and the pass to measure.
type Case = (&'static str, Box<dyn FnMut()>);

fn main() {
    for len in SIZES {
        let count = PASS.div_ceil(len as usize);
        let moved = count * len as usize;
        println!("\nsegments of {len} bytes, {count} per pass");
        println!("{:<34} {:>8} {:>17} {:>8}", "", "GB/s", "spread", "of CRC");
        report(moved, cases(len, count));
    }
}

fn cases(len: u32, count: usize) -> Vec<Case> {
    let mode = |crc, markers, copy| Mode { crc, markers, copy };
    let bytes = wire(Kind::Write, mode(true, false, true), len, count);
    let source = vec![0xa5_u8; count * len as usize];
    let mut memory = vec![0; len as usize];
    vec![
        ("bare CRC-32C of the frames", Box::new(crc_of(bytes, count))),
        (
            "bare copy of the payload",
            Box::new(move || {
                for from in source.chunks(len as usize) {
                    black_box(&mut memory).copy_from_slice(black_box(from));
                }
            }),
        ),
        (
            "rx CRC, payload copied",
            rx(Kind::Write, mode(true, false, true), len, count),
        ),
        (
            "rx CRC, Sends, copied",
            rx(Kind::Send, mode(true, false, true), len, count),
        ),
        (
            "rx CRC, payload not touched",
            rx(Kind::Write, mode(true, false, false), len, count),
        ),
        (
            "rx CRC and markers, copied",
            rx(Kind::Write, mode(true, true, true), len, count),
        ),
        (
            "rx no CRC, payload copied",
            rx(Kind::Write, mode(false, false, true), len, count),
        ),
        (
            "rx no CRC, direct (not touched)",
            rx(Kind::Write, mode(false, false, false), len, count),
        ),
        (
            "tx CRC, written to a stage",
            tx(mode(true, false, true), len, count),
        ),
        (
            "tx CRC and markers, to a stage",
            tx(mode(true, true, true), len, count),
        ),
        (
            "tx no CRC, written to a stage",
            tx(mode(false, false, true), len, count),
        ),
        (
            "tx no CRC, head and trailer only",
            tx(mode(false, false, false), len, count),
        ),
    ]
}

/// The checksum of each frame, over as many bytes as a receiver must sum.
fn crc_of(bytes: Vec<u8>, count: usize) -> impl FnMut() {
    let frame = bytes.len() / count;
    move || {
        for frame in bytes.chunks(frame) {
            black_box(crc32c(black_box(&frame[..frame.len() - 4])));
        }
    }
}

fn rx(kind: Kind, mode: Mode, len: u32, count: usize) -> Box<dyn FnMut()> {
    let bytes = wire(kind, mode, len, count);
    let mut memory = vec![0; len as usize];
    Box::new(move || {
        let mut stream = stream(mode);
        let delivered = receive(&mut stream, mode, black_box(&bytes), &mut memory);
        assert_eq!(delivered, count);
        black_box(&memory);
    })
}

fn tx(mode: Mode, len: u32, count: usize) -> Box<dyn FnMut()> {
    let payload = vec![0xa5; len as usize];
    Box::new(move || {
        let mut stream = stream(mode);
        transmit(
            &mut stream,
            Kind::Write,
            mode,
            black_box(&payload),
            count,
            |stage| {
                black_box(stage);
            },
        );
    })
}

fn report(moved: usize, mut cases: Vec<Case>) {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((_, pass), rates) in cases.iter_mut().zip(&mut rates) {
            let start = Instant::now();
            (0..PASSES).for_each(|_| pass());
            let seconds = start.elapsed().as_secs_f64();
            rates.push((moved * PASSES) as f64 / seconds / 1e9);
        }
    }
    rates.iter_mut().for_each(|r| r.sort_by(f64::total_cmp));
    let median = |rates: &[f64]| rates[rates.len() / 2];
    let bare = median(&rates[0]);
    for ((name, _), rates) in cases.iter().zip(&rates) {
        let (low, mid, high) = (rates[0], median(rates), rates[rates.len() - 1]);
        println!(
            "{name:<34} {mid:>8.2} {low:>8.2}–{high:<8.2} {:>7.2}",
            mid / bare
        );
    }
}
