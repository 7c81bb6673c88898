//! Compares CRC-32C implementations on the buffer sizes of a stream. It prints medians over
//! interleaved rounds of one run on one core, so that other load affects every candidate alike. The
//! choice and its reasons are in Cargo.toml.
//!
//! Run with `cargo bench -p verbena-wire --bench crc`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crc::Crc;

const SIZES: [usize; 6] = [64, 256, 1500, 4 << 10, 64 << 10, 1 << 20];
const ROUNDS: usize = 31;
/// Bytes for each candidate per round and size.
const BYTES_PER_ROUND: usize = 4 << 20;

static TABLES: Crc<u32, crc::Table<16>> = Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// A name and a checksum function.
type Candidate = (&'static str, fn(&[u8]) -> u32);

const CANDIDATES: [Candidate; 7] = [
    ("verbena-wire", verbena_wire::crc::crc32c),
    ("verbena-wire, 2 pieces", in_two_pieces),
    ("crc-fast checksum", crc_fast_generic),
    ("crc-fast crc32_iscsi", crc_fast::crc32_iscsi),
    ("crc32c", crc32c::crc32c),
    ("crc32c-hw", |bytes| crc32c_hw::compute(bytes)),
    ("crc, 16 tables", |bytes| TABLES.checksum(bytes)),
];

fn crc_fast_generic(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn in_two_pieces(bytes: &[u8]) -> u32 {
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    let mut crc = verbena_wire::crc::Crc32c::new();
    crc.update(head);
    crc.update(tail);
    crc.finish()
}

fn main() {
    let buffer: Vec<u8> = (0..1u32 << 20).map(|i| (i * 31 + i / 7) as u8).collect();
    for (name, sum) in CANDIDATES {
        assert_eq!(sum(b"123456789"), 0xe306_9283, "{name}");
    }
    print!("| candidate |");
    SIZES.iter().for_each(|size| print!(" {size} B |"));
    println!("\n|---|{}", "---|".repeat(SIZES.len()));

    let mut table = vec![[0.0; SIZES.len()]; CANDIDATES.len()];
    for (column, size) in SIZES.into_iter().enumerate() {
        let calls = BYTES_PER_ROUND / size;
        let bytes = &buffer[..size];
        let mut samples = vec![Vec::with_capacity(ROUNDS); CANDIDATES.len()];
        for _ in 0..ROUNDS {
            for (slot, (_, sum)) in samples.iter_mut().zip(CANDIDATES) {
                slot.push(time(sum, bytes, calls));
            }
        }
        for (row, mut slot) in table.iter_mut().zip(samples) {
            slot.sort_unstable();
            row[column] = slot[ROUNDS / 2].as_secs_f64() / calls as f64;
        }
    }
    for (row, (name, _)) in table.iter().zip(CANDIDATES) {
        print!("| {name} |");
        for (seconds, size) in row.iter().zip(SIZES) {
            let rate = size as f64 / seconds / 1e9;
            print!(" {:.1} ns, {rate:.1} GB/s |", seconds * 1e9);
        }
        println!();
    }
}

fn time(sum: fn(&[u8]) -> u32, bytes: &[u8], calls: usize) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(sum(black_box(bytes)));
    }
    start.elapsed()
}
