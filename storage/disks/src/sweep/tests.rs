//! Ranges that begin and end at any byte, on disks that complete late, out of order, or with errors.

use std::io::Write as _;
use std::os::fd::AsFd;

use super::*;
use crate::error::Failure;
use crate::ram::{RamDisk, noise};

const PACE: TransferOptions = TransferOptions {
    depth: 5,
    piece: 4096,
};

fn proceed(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn delayed_disk(blocks: u64, block: u32, seed: u64) -> RamDisk {
    RamDisk::filled(blocks, block, seed).reordering(2, seed + 1)
}

/// Ranges of a disk of 64 KiB: whole, within one block, across block boundaries, empty.
const RANGES: [Range<u64>; 9] = [
    0..65536,
    0..1,
    1..2,
    511..513,
    100..40000,
    4096..8192,
    4097..65536,
    65535..65536,
    700..700,
];

#[test]
fn any_range_is_read_in_order() {
    for block in [512, 4096] {
        for range in RANGES {
            let mut ram = delayed_disk(65536 / u64::from(block), block, 3);
            let mut out = Writer(Vec::new());
            let mut last = 0;
            let mut watch = |progress: Progress| {
                assert!(progress.done > last && progress.done <= progress.total);
                last = progress.done;
                ControlFlow::Continue(())
            };
            let got = read(&mut ram, range.clone(), &mut out, PACE, &mut watch).unwrap();
            assert_eq!(got, range.end - range.start);
            assert_eq!(last, got);
            assert!(out.0 == ram.bytes[range.start as usize..range.end as usize]);
            if got > 30000 {
                assert_eq!(ram.counters.deepest, 5);
            }
        }
    }
}

#[test]
fn only_the_range_is_written() {
    for block in [512, 4096] {
        for range in RANGES {
            // Sources that are long enough, and others that end earlier: within a block, between blocks, at once.
            for short in [0, 1, 512, 5000, 65536] {
                let mut ram = delayed_disk(65536 / u64::from(block), block, 4);
                let mut expected = ram.bytes.clone();
                let len = (range.end - range.start).saturating_sub(short) as usize;
                let bytes = noise(len, 5);
                let start = range.start as usize;
                expected[start..start + len].copy_from_slice(&bytes);
                let mut source = Reader(&bytes[..]);
                let got = write(&mut ram, range.clone(), &mut source, PACE, &mut proceed).unwrap();
                assert_eq!(got, len as u64, "{range:?} {short}");
                assert!(ram.bytes == expected, "{block} {range:?} {short}");
            }
        }
    }
}

#[test]
fn descriptors_are_read_and_written_without_a_copy() {
    let mut ram = delayed_disk(64, 512, 6);
    let (reader, mut writer) = io_pipe();
    let bytes = noise(20000, 7);
    let expected = bytes.clone();
    let thread = std::thread::spawn(move || writer.write_all(&bytes));
    let inlet = &mut FdSource(reader.as_fd());
    let got = write(&mut ram, 100..32768, inlet, PACE, &mut proceed).unwrap();
    thread.join().unwrap().unwrap();
    assert_eq!(got, 20000);
    assert!(ram.bytes[100..20100] == expected);

    let (mut reader, writer) = io_pipe();
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut all).map(|_| all)
    });
    read(
        &mut ram,
        100..20100,
        &mut FdSink(writer.as_fd()),
        PACE,
        &mut proceed,
    )
    .unwrap();
    drop(writer);
    assert!(thread.join().unwrap().unwrap() == expected);
}

fn io_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    std::io::pipe().unwrap()
}

#[test]
fn check_finds_first_difference_and_short_input() {
    let mut ram = delayed_disk(256, 512, 8);
    let mut bytes = ram.bytes[10..100_010].to_vec();
    let mut verify = |bytes: &[u8]| {
        let range = 10..100_010;
        read(
            &mut ram,
            range,
            &mut CompareSink::new(bytes),
            PACE,
            &mut proceed,
        )
    };
    assert_eq!(verify(&bytes).unwrap(), 100_000);
    let said = verify(&bytes[..70_000]).unwrap_err().to_string();
    assert!(
        said.starts_with("the input ended after 70000 of "),
        "{said}"
    );
    bytes[66_000] ^= 1;
    bytes[90_000] ^= 1;
    let Err(Error::Differs {
        at,
        expected,
        found,
    }) = verify(&bytes)
    else {
        panic!("no difference");
    };
    assert_eq!((at, expected ^ found), (66_010, 1));
}

#[test]
fn disks_of_different_geometry_are_copied() {
    for (here, there) in [(512, 512), (512, 4096), (4096, 512)] {
        for (range, at) in [
            (0..65536, 0),
            (0..65536, 4096),
            (4096..50000, 8192),
            (100..60001, 4196),
            (5000..5001, 904),
            (9..9, 9),
        ] {
            for shared in [true, false] {
                let mut from = delayed_disk(65536 / u64::from(here), here, 9);
                let mut to = delayed_disk(81920 / u64::from(there), there, 10);
                to.foreign = !shared;
                to.geometry.maximal = 8192;
                to.depth = 3;
                let mut expected = to.bytes.clone();
                let (start, end) = (range.start as usize, range.end as usize);
                let len = end - start;
                expected[at..at + len].copy_from_slice(&from.bytes[start..end]);
                let at = at as u64;
                let got = copy(&mut from, range.clone(), &mut to, at, PACE, &mut proceed).unwrap();
                assert_eq!(got, len as u64);
                assert!(to.bytes == expected, "{here} {there} {range:?} {at}");
                let again = compare(&mut from, range.clone(), &mut to, at, PACE, &mut proceed);
                assert_eq!(again.unwrap(), len as u64);
                if len > 0 {
                    to.bytes[at as usize + len - 1] ^= 1;
                    let again = compare(&mut from, range.clone(), &mut to, at, PACE, &mut proceed);
                    let place = at + len as u64 - 1;
                    assert!(matches!(again, Err(Error::Differs { at, .. }) if at == place));
                }
            }
        }
    }
}

#[test]
fn failure_names_its_offset_and_drains_requests() {
    let mut ram = delayed_disk(128, 512, 11);
    ram.bad = vec![(64..65, Failure::Medium("scratched".into()))];
    let said = read(
        &mut ram,
        0..65536,
        &mut Writer(Vec::new()),
        PACE,
        &mut proceed,
    )
    .unwrap_err();
    assert_eq!(
        said.to_string(),
        "a read at byte 32768: the target's medium failed: scratched"
    );
    let bytes = noise(65536, 12);
    let said = write(
        &mut ram,
        0..65536,
        &mut Reader(&bytes[..]),
        PACE,
        &mut proceed,
    )
    .unwrap_err();
    assert!(
        said.to_string().starts_with("a write at byte 32768: "),
        "{said}"
    );
    // Nothing is outstanding: ids start over, and the rest of the disk can be read.
    let mut out = Writer(Vec::new());
    assert_eq!(
        read(&mut ram, 0..32768, &mut out, PACE, &mut proceed).unwrap(),
        32768
    );
    ram.requests_left = Some(2);
    let said = read(&mut ram, 0..32768, &mut out, PACE, &mut proceed).unwrap_err();
    assert_eq!(said.to_string(), "the disk was lost");
}

#[test]
fn progress_callback_can_stop_the_sweep() {
    let mut ram = delayed_disk(128, 512, 13);
    let mut halfway = |progress: Progress| match progress.done * 2 >= progress.total {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let mut out = Writer(Vec::new());
    let ended = read(&mut ram, 0..65536, &mut out, PACE, &mut halfway);
    assert!(matches!(
        ended,
        Err(Error::Stopped {
            done: 32768,
            total: 65536
        })
    ));
    assert_eq!(out.0.len(), 32768);
    let bytes = noise(65536, 1);
    let ended = write(
        &mut ram,
        0..65536,
        &mut Reader(&bytes[..]),
        PACE,
        &mut halfway,
    );
    assert!(matches!(ended, Err(Error::Stopped { .. })));
}

#[test]
fn impossible_sweeps_are_refused_up_front() {
    let mut ram = RamDisk::new(16, 4096);
    let mut out = Writer(Vec::new());
    let (first, last) = (2, 1);
    for range in [0..65537, 65536..65537, first..last, u64::MAX - 1..u64::MAX] {
        let said = read(&mut ram, range, &mut out, PACE, &mut proceed).unwrap_err();
        assert!(
            said.to_string().contains("the disk ends at 65536"),
            "{said}"
        );
    }
    let mut other = RamDisk::new(16, 512);
    let said = copy(&mut ram, 0..4096, &mut other, 512, PACE, &mut proceed).unwrap_err();
    assert!(said.to_string().contains("multiple of 4096"), "{said}");
    other.geometry.read_only = true;
    let said = copy(&mut ram, 0..4096, &mut other, 0, PACE, &mut proceed).unwrap_err();
    assert!(matches!(said, Error::ReadOnly));
    let said = write(&mut other, 0..1, &mut Reader(&b"x"[..]), PACE, &mut proceed).unwrap_err();
    assert!(matches!(said, Error::ReadOnly));
}

#[test]
fn depth_and_piece_follow_the_geometry() {
    let mut geometry = RamDisk::new(16, 4096).geometry;
    let settle = |geometry: &Geometry, depth, piece, limit| {
        TransferOptions { depth, piece }.resolve(geometry, limit)
    };
    assert_eq!(settle(&geometry, 0, 0, 128), (32, 256 << 10));
    assert_eq!(settle(&geometry, 0, 0, 4), (4, 256 << 10));
    assert_eq!(settle(&geometry, 1, 1, 128), (1, 4096));
    assert_eq!(settle(&geometry, 0, 5000, 0), (1, 4096));
    geometry.optimal = 65536;
    assert_eq!(settle(&geometry, 0, 0, 128), (32, 65536));
    assert_eq!(settle(&geometry, 0, u32::MAX, 128), (32, 1 << 20));
    geometry.maximal = u32::MAX;
    let (depth, piece) = settle(&geometry, 100_000, u32::MAX, 100_000);
    assert!(depth * piece as usize <= 2 * MAX_MEMORY, "{depth} {piece}");
}
