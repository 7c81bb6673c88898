//! Simulations of whole adapters: a seed makes hosts, queue pairs and memory in a [`Fabric`](crate::Fabric), lets programs use and
//! misuse them, and checks every outcome. The same seed gives the same run, and a failure prints how to reproduce it. The checkers
//! know only what programs posted and what was reported to them, not the inside of adapters.
//!
//! Reading order: [`record`] (what is recorded) → `draw` (hosts and pairs) → `drive`, `request`, `cell`, `refused`, `rare_faults`, `program`,
//! `packets` (what happens) → [`checker`] (the checks).

mod cell;
pub mod checker;
mod draw;
mod drive;
mod event_counts;
mod memory;
mod packets;
mod probabilities;
mod program;
mod rare_faults;
pub mod record;
mod refused;
mod request;
mod world;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use verbena_nic::Status;
use verbena_stream::Time;

use crate::run::RunCounters;
use record::{Fault, Record};
use world::World;

/// The wire under the queue pairs of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Byte streams, as of TCP.
    Tcp,
    /// RoCEv2 packets.
    Roce,
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wire::Tcp => "tcp",
            Wire::Roce => "roce",
        })
    }
}

/// A run that failed a check.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The wire.
    pub wire: Wire,
    /// The error.
    pub why: String,
    /// The last lines of the log.
    pub log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} failed in the adapter simulation over {}: {}",
            self.seed, self.wire, self.why
        )?;
        for line in &self.log {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "reproduce: verbena-sim --wire {} --seed {}",
            self.wire, self.seed
        )
    }
}

/// Lines of the log that a failure shows.
const LAST_LINES: usize = 80;

/// Runs the adapters of a seed and checks the outcome.
pub fn run(seed: u64) -> Result<RunCounters, Box<Failure>> {
    check_outcome(seed, Wire::Tcp, simulate(seed))
}

/// Like [`run`], with requests of one queue pair that also read and write the same memory (cells).
pub fn run_with_cells(seed: u64) -> Result<RunCounters, Box<Failure>> {
    check_outcome(seed, Wire::Tcp, simulate_with_cells(seed))
}

/// Like [`run`], with connections over RoCEv2 packets that links lose, repeat, reorder, damage and delay. Every second run uses cells.
pub fn run_roce(seed: u64) -> Result<RunCounters, Box<Failure>> {
    check_outcome(seed, Wire::Roce, simulate_roce(seed))
}

fn check_outcome(
    seed: u64,
    wire: Wire,
    played: Result<Record, String>,
) -> Result<RunCounters, Box<Failure>> {
    let fail = |why, story| {
        Box::new(Failure {
            seed,
            wire,
            why,
            log: story,
        })
    };
    let record = played.map_err(|why| fail(why, Vec::new()))?;
    match checker::check(&record) {
        Ok(()) => Ok(counters(&record)),
        Err(why) => {
            let from = record.log.len().saturating_sub(LAST_LINES);
            Err(fail(why, record.log[from..].to_vec()))
        }
    }
}

/// Runs the adapters of a seed without the checks; a panic is an error like any other.
pub fn simulate(seed: u64) -> Result<Record, String> {
    catch_panic(|| World::new(seed).run())
}

/// Like [`simulate`], with cells.
pub fn simulate_with_cells(seed: u64) -> Result<Record, String> {
    catch_panic(|| World::with_cells(seed).run())
}

/// Like [`simulate`], over RoCEv2.
pub fn simulate_roce(seed: u64) -> Result<Record, String> {
    catch_panic(|| World::over_roce(seed).run())
}

fn catch_panic(play: impl FnOnce() -> Record) -> Result<Record, String> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn counters(record: &Record) -> RunCounters {
    let of = |fault| {
        record
            .pairs
            .iter()
            .filter(move |p| p.faults.contains(&fault))
    };
    let sent = record.qps.iter().flat_map(|q| &q.sent);
    let received = record.qps.iter().flat_map(|q| &q.received);
    RunCounters {
        sessions: record.pairs.len() as u64,
        works: sent.filter(|w| w.status == Status::Success).count() as u64,
        messages: received.filter(|w| w.status == Status::Success).count() as u64,
        bytes: record.bytes,
        rnrs: record.rnrs,
        resets: (of(Fault::Reset).count() + of(Fault::Killed).count()) as u64,
        flips: record.qps.iter().map(|q| q.damage as u64).sum(),
        time: record.end.since(Time::ZERO),
        events: event_counts::count(record),
    }
}

#[cfg(test)]
mod tests;
