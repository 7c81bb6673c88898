//! Simulations of the split driver: hosts and I/O units joined by cascaded switches, with service connections of every arrangement
//! over real cells and real memory (P1–P7, P9). The same seed gives the same run, and a failure prints how to reproduce it. The checkers
//! know only what programs sent, lent and were told, not the inside of sessions and ports.
//!
//! Reading order: `switches` (what carries cells) → `memory` and `accounting` (the checkers) → `end` with its `program`, `node`
//! (hosts and units) → `drive` (what happens).

mod accounting;
mod drive;
mod end;
mod memory;
mod node;
mod service_id;
mod switches;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use verbena_stream::Time;

use crate::run::RunCounters;
use drive::{Outcome, World};

/// A run that failed a check.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The error.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, why } = self;
        writeln!(
            f,
            "seed {seed} failed in the switched-fabric simulation: {why}"
        )?;
        write!(f, "reproduce: verbena-sim --split --seed {seed}")
    }
}

/// Runs the simulation of a seed and checks the outcome.
pub fn run(seed: u64) -> Result<RunCounters, Box<Failure>> {
    let played = catch_unwind(AssertUnwindSafe(|| World::new(seed).and_then(World::run)));
    let played = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    match played {
        Ok(outcome) => Ok(counters(&outcome)),
        Err(why) => Err(Box::new(Failure { seed, why })),
    }
}

fn counters(outcome: &Outcome) -> RunCounters {
    let fabric = &outcome.fabric;
    let events = [
        ("packets over cells", outcome.packets),
        ("cells", fabric.cells),
        ("floods", fabric.floods),
        ("cells dropped by full queues", fabric.full),
        ("cells dropped by partitions", fabric.cut),
        ("partitions", fabric.partitions),
        ("killed hosts", outcome.deaths),
        ("ended connections", outcome.ended),
    ];
    RunCounters {
        sessions: u64::from(outcome.connections),
        bytes: fabric.bytes,
        flips: fabric.flips,
        time: outcome.end.since(Time::ZERO),
        events: events.into_iter().filter(|(_, count)| *count > 0).collect(),
        ..RunCounters::default()
    }
}

#[cfg(test)]
mod tests;
