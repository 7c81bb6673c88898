//! A deterministic simulation: ports joined by cascaded switches that lose, reorder, duplicate, corrupt and partition, and a checker.
//! A failing seed is repeated by putting it into `one_seed`.

#[path = "world/end.rs"]
mod end;
#[path = "world/fabric.rs"]
mod fabric;
#[path = "world/rng.rs"]
mod rng;
#[path = "world/run.rs"]
mod run;

use fabric::Faults;
use run::run;

/// Without faults everything arrives, on every kind of channel.
#[test]
fn faultless_fabric_delivers_everything() {
    for seed in 0..60 {
        let outcome = run(seed, Faults::NONE);
        assert_eq!(outcome.failed, 0, "seed {seed}");
        assert_eq!(outcome.undelivered, 0, "seed {seed}");
    }
}

/// All faults, but none for long: acknowledged channels continue.
#[test]
fn acknowledged_channels_survive_a_bad_fabric() {
    let (mut carried, mut failed) = (0, 0);
    for seed in 1000..1300 {
        let outcome = run(seed, Faults::BAD);
        carried += outcome.carried;
        failed += outcome.failed;
    }
    assert!(carried > 20 * failed, "{carried} carried, {failed} failed");
}

/// Links that stay down: channels across them fail with an error, and no others.
#[test]
fn channels_over_dead_links_fail_with_errors() {
    let mut failed = 0;
    for seed in 2000..2100 {
        failed += run(seed, Faults::DEAD_LINK).failed;
    }
    assert!(failed > 0, "no seed cut a connection");
}

/// Repeats one seed with the faults of one of the tests.
#[test]
fn one_seed() {
    run(1, Faults::BAD);
}
