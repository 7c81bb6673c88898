//! Simulations of whole adapters: a seed makes hosts, queue pairs and memory in a [`Fabric`](crate::Fabric), lets programs use and
//! misuse them, and checks every outcome. The same seed gives the same run, and a failure prints how to reproduce it. The checkers
//! know only what programs posted and what was reported to them, not the inside of adapters.
//!
//! Reading order: [`record`] (what is recorded) → `draw` (hosts and pairs) → `drive`, `request`, `cell`, `refused`, `trouble`, `program`
//! (what happens) → [`checker`] (the checks).

mod cell;
mod census;
mod chances;
pub mod checker;
mod draw;
mod drive;
mod memory;
mod program;
pub mod record;
mod refused;
mod request;
mod trouble;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use verbena_nic::Status;
use verbena_stream::Time;

use crate::run::Tally;
use drive::World;
use record::{Fault, Record};

/// A run that failed a check.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The error.
    pub why: String,
    /// The last lines of the log.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed among adapters: {}", self.seed, self.why)?;
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        write!(f, "again: verbena-sim --adapters --seed {}", self.seed)
    }
}

/// Lines of the log that a failure shows.
const LAST_LINES: usize = 80;

/// Runs the adapters of a seed and checks the outcome.
pub fn run(seed: u64) -> Result<Tally, Box<Failure>> {
    judge(seed, play(seed))
}

/// Like [`run`], with requests of one queue pair that also read and write the same memory (cells).
pub fn run_with_cells(seed: u64) -> Result<Tally, Box<Failure>> {
    judge(seed, play_with_cells(seed))
}

fn judge(seed: u64, played: Result<Record, String>) -> Result<Tally, Box<Failure>> {
    let fail = |why, story| Box::new(Failure { seed, why, story });
    let record = played.map_err(|why| fail(why, Vec::new()))?;
    match checker::check(&record) {
        Ok(()) => Ok(tally(&record)),
        Err(why) => {
            let from = record.story.len().saturating_sub(LAST_LINES);
            Err(fail(why, record.story[from..].to_vec()))
        }
    }
}

/// Runs the adapters of a seed without the checks; a panic is an error like any other.
pub fn play(seed: u64) -> Result<Record, String> {
    caught(|| World::new(seed).play())
}

/// Like [`play`], with cells.
pub fn play_with_cells(seed: u64) -> Result<Record, String> {
    caught(|| World::with_cells(seed).play())
}

fn caught(play: impl FnOnce() -> Record) -> Result<Record, String> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn tally(record: &Record) -> Tally {
    let of = |fault| {
        record
            .pairs
            .iter()
            .filter(move |p| p.faults.contains(&fault))
    };
    let sent = record.qps.iter().flat_map(|q| &q.sent);
    let received = record.qps.iter().flat_map(|q| &q.received);
    Tally {
        sessions: record.pairs.len() as u64,
        works: sent.filter(|w| w.status == Status::Success).count() as u64,
        messages: received.filter(|w| w.status == Status::Success).count() as u64,
        bytes: record.bytes,
        rnrs: record.rnrs,
        resets: (of(Fault::Reset).count() + of(Fault::Killed).count()) as u64,
        flips: record.qps.iter().map(|q| q.damage as u64).sum(),
        time: record.end.since(Time::ZERO),
        events: census::of(record),
    }
}

#[cfg(test)]
mod tests;
