//! Split worlds that run with every `cargo test`: the first seeds, and what they must reach.
//! They promise that the worlds come to every kind of trouble they were made for.
//! The long run is `verbena-sim --split`.

use super::*;

#[test]
fn the_first_seeds_pass_and_repeat() {
    let mut all = Tally::default();
    for seed in 0..40 {
        let one = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        if seed % 8 == 0 {
            assert_eq!(run(seed).unwrap(), one, "seed {seed}");
        }
        all.add(&one);
    }
    assert!(all.events["packets over cells"] > 10_000, "{all}");
    for trouble in ["floods", "cells too many for a queue", "partitions"] {
        assert!(all.events[trouble] > 10, "{trouble}: {all}");
    }
    for trouble in ["deaths of hosts", "ends of connections", "cells cut off"] {
        assert!(all.events[trouble] > 10, "{trouble}: {all}");
    }
}
