//! Seeds that run with every `cargo test`: the kept ones, each named by the bug it found, and a first handful.
//! They promise that every workload is among them.
//! The long run is `cargo xtask sim`.

use verbena_sim::Workload;
use verbena_sim::run::{Tally, run};

const KEPT: &str = include_str!("../regressions/seeds.txt");

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
fn the_first_sixty_seeds_pass() {
    let mut all = Tally::default();
    for seed in 0..60 {
        match run(seed, None) {
            Ok(tally) => all.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    // A run in which nothing happens passes too: see that something did.
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
