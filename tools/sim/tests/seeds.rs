//! Seeds that run with every `cargo test`: the kept ones, each named by the bug it found, and the first few.
//! Every workload is among them. The long run is `cargo xtask sim`.

use verbena_sim::adapters;
use verbena_sim::run::{RunCounters, run};
use verbena_sim::split;
use verbena_sim::work::{Report, Status};
use verbena_sim::{Rng, Workload, World};
use verbena_stream::{Outcome, Time, Violation};

const KEPT: &str = include_str!("../regressions/seeds.txt");
const KEPT_ADAPTERS: &str = include_str!("../regressions/adapters.txt");
const KEPT_ROCE: &str = include_str!("../regressions/roce.txt");
const KEPT_SPLIT: &str = include_str!("../regressions/split.txt");

#[test]
fn kept_seeds_pass() {
    let lines = KEPT
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty());
    let mut count = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let (Some(seed), Some(workload)) = (words.next(), words.next()) else {
            panic!("not a seed and a workload: {line:?}");
        };
        let seed = seed.parse().expect("a number");
        let workload: Workload = workload.parse().expect("a workload");
        assert!(words.next().is_some(), "what did seed {seed} show?");
        if let Err(failure) = run(seed, Some(workload)) {
            panic!("{line}\n{failure}");
        }
        count += 1;
    }
    assert!(count >= 3, "kept seeds are missing");
}

#[test]
fn kept_adapter_seeds_pass() {
    replay(KEPT_ADAPTERS, 13, |seed| {
        adapters::run(seed).map_err(|f| f.to_string())
    });
}

#[test]
fn kept_roce_seeds_pass() {
    replay(KEPT_ROCE, 1, |seed| {
        adapters::run_roce(seed).map_err(|f| f.to_string())
    });
}

#[test]
fn kept_split_seeds_pass() {
    replay(KEPT_SPLIT, 1, |seed| {
        split::run(seed).map_err(|f| f.to_string())
    });
}

/// Runs every seed of a list, which must have at least `least`.
fn replay(kept: &str, least: usize, run: impl Fn(u64) -> Result<RunCounters, String>) {
    let mut count = 0;
    for line in kept.lines().filter(|l| !l.starts_with('#')) {
        let (seed, shown) = line.split_once(' ').expect("a seed and what it showed");
        assert!(!shown.is_empty());
        if let Err(failure) = run(seed.parse().expect("a number")) {
            panic!("{line}\n{failure}");
        }
        count += 1;
    }
    assert!(count >= least, "kept seeds are missing");
}

#[test]
fn the_first_sixty_seeds_pass() {
    let mut all = RunCounters::default();
    for seed in 0..60 {
        match run(seed, None) {
            Ok(tally) => all.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    // A run in which nothing happens passes, too: check that something did.
    assert!(all.works > 500 && all.messages > 300, "{all}");
    assert!(all.rnrs > 0 && all.resets > 0 && all.flips > 0, "{all}");
}

#[test]
fn every_workload_passes_its_first_seeds() {
    for workload in Workload::ALL {
        for seed in 0..5 {
            if let Err(failure) = run(seed, Some(workload)) {
                panic!("{failure}");
            }
        }
    }
}

/// A property of a report.
type ReportPredicate = fn(&Report) -> bool;

/// Each of these must occur in the first seeds, or the workloads do not cover what they were made for.
#[test]
fn workloads_cover_every_kind_of_end() {
    let ends: [(&str, ReportPredicate); 8] = [
        ("patience ran out", |r| {
            matches!(r, Report::Completed(_, Status::RnrExceeded))
        }),
        ("refused work", |r| {
            matches!(r, Report::Completed(_, Status::Refused(_)))
        }),
        ("flushed work", |r| {
            matches!(r, Report::Completed(_, Status::Flushed))
        }),
        ("bad checksum", |r| {
            matches!(r, Report::Violation(Violation::Crc { .. }))
        }),
        ("refused access", |r| {
            matches!(r, Report::Violation(Violation::Access { .. }))
        }),
        ("rejection", |r| {
            matches!(r, Report::NotEstablished(Outcome::Rejected { .. }))
        }),
        ("fallback", |r| {
            matches!(
                r,
                Report::NotEstablished(Outcome::Failed { retry: Some(_), .. })
            )
        }),
        ("rude end", |r| matches!(r, Report::Closed(false))),
    ];
    let mut missing: Vec<_> = ends.into();
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let workload = rng.pick(&Workload::ALL);
        for session in workload.sessions(&mut rng) {
            let transcript = World::of_peers(session, &mut rng, Time::ZERO).run();
            let reports = transcript.reports.concat();
            missing.retain(|(_, happened)| !reports.iter().any(happened));
        }
        if missing.is_empty() {
            return;
        }
    }
    let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
    panic!("never seen: {}", names.join(", "));
}
