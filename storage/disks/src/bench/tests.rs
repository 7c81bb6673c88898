//! Loads on a disk in memory: blocks accessed, counters, invalid loads.

use super::*;
use crate::error::Failure;
use crate::ram::RamDisk;

fn load() -> Load {
    Load {
        range: 8192..40960,
        pattern: Pattern::Random,
        reads: 70,
        size: 4096,
        depth: 8,
        limit: Limit::Requests(1000),
        seed: 1,
        discard: false,
    }
}

fn proceed(_: Duration) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn mixed_load_accesses_only_its_range() {
    let mut ram = RamDisk::new(128, 512).reordering(2, 5);
    let score = run(&mut ram, &load(), &mut proceed).unwrap();
    assert_eq!(score.reads + score.writes, 1000);
    assert!((600..800).contains(&score.reads), "{}", score.reads);
    assert_eq!(
        (ram.counters.reads as u64, ram.counters.writes as u64),
        (score.reads, score.writes)
    );
    assert_eq!(ram.counters.deepest, 8);
    assert_eq!(score.bytes(), 4_096_000);
    assert_eq!(score.latency.count(), 1000);
    assert!(ram.bytes[..8192].iter().all(|byte| *byte == 0));
    assert!(ram.bytes[40960..].iter().all(|byte| *byte == 0));
    // Every position was written, with bytes that do not repeat.
    assert!(
        ram.bytes[8192..40960]
            .chunks(4096)
            .all(|part| part.iter().any(|byte| *byte != 0))
    );
    let text = score.to_string();
    for part in ["requests/s", "MB/s", "median", "p99", "CPU seconds per GB"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn sequential_load_wraps_and_honours_read_share() {
    let mut ram = RamDisk::new(128, 512);
    let load = Load {
        pattern: Pattern::Sequential,
        reads: 0,
        limit: Limit::Requests(7),
        ..load()
    };
    run(&mut ram, &load, &mut proceed).unwrap();
    // Seven of eight positions.
    assert!(
        ram.bytes[8192..36864]
            .chunks(4096)
            .all(|part| part.iter().any(|byte| *byte != 0))
    );
    assert!(ram.bytes[36864..].iter().all(|byte| *byte == 0));
    let before = ram.bytes.clone();
    ram.geometry.read_only = true;
    let load = Load { reads: 100, ..load };
    let score = run(&mut ram, &load, &mut proceed).unwrap();
    assert_eq!((score.reads, score.writes), (7, 0));
    assert!(ram.bytes == before);
}

/// Offsets of the buffers of all slots, reads and then writes.
fn offsets(load: &Load) -> (Vec<usize>, Vec<usize>) {
    let of = |read| {
        (0..load.depth)
            .map(|slot| load.offset(slot, read))
            .collect()
    };
    (of(true), of(false))
}

#[test]
fn only_discarded_reads_share_memory() {
    let load = Load { depth: 3, ..load() };
    assert_eq!(load.memory(), 6 * 4096);
    assert_eq!(
        offsets(&load),
        (vec![12288, 16384, 20480], vec![0, 4096, 8192])
    );
    let discards = Load {
        discard: true,
        ..load
    };
    assert_eq!(discards.memory(), 4 * 4096);
    assert_eq!(
        offsets(&discards),
        (vec![12288, 12288, 12288], vec![0, 4096, 8192])
    );
    let reads = Load {
        reads: 100,
        ..discards
    };
    assert_eq!((reads.memory(), offsets(&reads).0), (4096, vec![0, 0, 0]));
    let mut ram = RamDisk::new(128, 512).reordering(2, 5);
    let score = run(&mut ram, &reads, &mut proceed).unwrap();
    assert_eq!((score.reads, score.writes), (1000, 0));
}

#[test]
fn load_ends_by_time_or_callback() {
    let mut ram = RamDisk::new(128, 512);
    let time = Duration::from_millis(20);
    let limit = Limit::Time(time);
    let score = run(&mut ram, &Load { limit, ..load() }, &mut proceed).unwrap();
    assert!(score.elapsed >= time && score.iops() > 0.0);
    assert!(score.latency.min() <= score.latency.quantile(0.5));
    assert!(score.latency.quantile(0.99) <= score.latency.max());
    let limit = Limit::Time(Duration::from_secs(3600));
    let mut enough = |_: Duration| ControlFlow::Break(());
    let score = run(&mut ram, &Load { limit, ..load() }, &mut enough).unwrap();
    assert!(score.elapsed < Duration::from_secs(60));
}

#[test]
fn invalid_loads_are_refused_with_a_reason() {
    let mut ram = RamDisk::new(128, 512);
    let mut said = |load: Load| run(&mut ram, &load, &mut proceed).unwrap_err().to_string();
    let (first, last) = (2, 1);
    let cases = [
        (
            Load {
                range: 0..65537,
                ..load()
            },
            "the disk ends at 65536",
        ),
        (
            Load {
                range: first..last,
                ..load()
            },
            "the disk ends at 65536",
        ),
        (
            Load {
                range: 0..4095,
                ..load()
            },
            "holds a request of 4096",
        ),
        (
            Load {
                range: 1..65536,
                ..load()
            },
            "begins between blocks of 512",
        ),
        (Load { size: 0, ..load() }, "multiples of 512 up to 1048576"),
        (
            Load {
                size: 513,
                ..load()
            },
            "multiples of 512",
        ),
        (
            Load {
                size: 2 << 20,
                ..load()
            },
            "up to 1048576",
        ),
        (Load { depth: 0, ..load() }, "the disk takes 1 to 32"),
        (
            Load {
                depth: 33,
                ..load()
            },
            "the disk takes 1 to 32",
        ),
        (
            Load {
                reads: 101,
                ..load()
            },
            "101 reads in a hundred",
        ),
    ];
    for (load, part) in cases {
        let text = said(load);
        assert!(text.contains(part), "{text}");
    }
    ram.geometry.read_only = true;
    let ended = run(&mut ram, &load(), &mut proceed);
    assert!(matches!(ended, Err(Error::ReadOnly)));
    ram.geometry.read_only = false;
    ram.bad = vec![(16..17, Failure::NoSpace)];
    let said = run(&mut ram, &Load { reads: 0, ..load() }, &mut proceed).unwrap_err();
    assert!(
        said.to_string().starts_with("a write at byte 8192: "),
        "{said}"
    );
}
