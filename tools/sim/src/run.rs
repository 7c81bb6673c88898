//! One seed, one run: the seed picks the workload and everything else, the checkers check the result.
//! The same seed gives the same events, and a failure prints how to reproduce it.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::catch_unwind;

use verbena_stream::Time;

use crate::checker;
use crate::rng::Rng;
use crate::session::Session;
use crate::work::Report;
use crate::workload::Workload;
use crate::world::{Event, Transcript, World};

/// Events shown of a failed run.
const LAST_EVENTS: usize = 40;

/// Sums over runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunCounters {
    /// Connections.
    pub sessions: u64,
    /// Work requests that ended in success.
    pub works: u64,
    /// Messages that consumed a receive.
    pub messages: u64,
    /// Bytes on the links.
    pub bytes: u64,
    /// RNRs.
    pub rnrs: u64,
    /// Reset connections.
    pub resets: u64,
    /// Flipped bits.
    pub flips: u64,
    /// Virtual time.
    pub time: Duration,
    /// Counts of the simulations of adapters, by name.
    pub events: BTreeMap<&'static str, u64>,
}

impl RunCounters {
    /// Adds the other's counts.
    pub fn add(&mut self, other: &RunCounters) {
        self.sessions += other.sessions;
        self.works += other.works;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.rnrs += other.rnrs;
        self.resets += other.resets;
        self.flips += other.flips;
        self.time += other.time;
        for (name, count) in &other.events {
            *self.events.entry(name).or_default() += count;
        }
    }

    fn note(&mut self, t: &Transcript) {
        self.sessions += 1;
        self.bytes += t.sent.iter().sum::<u64>();
        self.resets += u64::from(t.reset);
        self.flips += t.flipped.iter().map(|f| f.len() as u64).sum::<u64>();
        for report in t.reports.iter().flatten() {
            match report {
                Report::Completed(_, status) if status.is_success() => self.works += 1,
                Report::Received(_) => self.messages += 1,
                Report::Rnr(_) => self.rnrs += 1,
                _ => {}
            }
        }
    }
}

impl fmt::Display for RunCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} works, {} messages, {} bytes, {} RNRs, {} resets, {} flips, {:.1} s of virtual time",
            self.sessions,
            self.works,
            self.messages,
            self.bytes,
            self.rnrs,
            self.resets,
            self.flips,
            self.time.as_secs_f64()
        )?;
        for (name, count) in &self.events {
            write!(f, ", {count} {name}")?;
        }
        Ok(())
    }
}

/// A run that failed a check.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The workload.
    pub workload: Workload,
    /// The error.
    pub why: String,
    /// The session it happened in, without its plan.
    pub options: String,
    /// The last events.
    pub events: Vec<Event>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} failed in {}: {}",
            self.seed, self.workload, self.why
        )?;
        writeln!(f, "options: {}", self.options)?;
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        write!(
            f,
            "reproduce: cargo xtask sim --seed {} --workload {}",
            self.seed, self.workload
        )
    }
}

/// Runs a seed; without a workload the seed picks one.
pub fn run(seed: u64, workload: Option<Workload>) -> Result<RunCounters, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let picked = rng.pick(&Workload::ALL);
    let workload = workload.unwrap_or(picked);
    let mut tally = RunCounters::default();
    let mut now = Time::ZERO;
    for session in workload.sessions(&mut rng) {
        let failure = |why, events| {
            Box::new(Failure {
                seed,
                workload,
                why,
                options: describe(&session),
                events,
            })
        };
        let transcript = run_session(&session, &mut rng, now)
            .map_err(|crash| failure(crash.why, crash.events))?;
        now = transcript.end;
        tally.note(&transcript);
        checker::check(&transcript).map_err(|why| failure(why, last(&transcript.events)))?;
    }
    tally.time = now.since(Time::ZERO);
    Ok(tally)
}

/// A run that panicked.
#[derive(Debug)]
pub struct Crash {
    /// The message of the panic.
    pub why: String,
    /// The last events before it.
    pub events: Vec<Event>,
}

/// Runs one session between two peers of this crate; a panic is an error like any other.
pub fn run_session(session: &Session, rng: &mut Rng, start: Time) -> Result<Transcript, Crash> {
    let made = catch_panic(|| World::of_peers(session.clone(), rng, start));
    let crash = |why, events| Crash { why, events };
    let mut world = made.map_err(|why| crash(why, Vec::new()))?;
    catch_panic(|| world.run_until_idle()).map_err(|why| crash(why, last(world.events())))?;
    Ok(world.into_transcript())
}

fn catch_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn last(events: &[Event]) -> Vec<Event> {
    events[events.len().saturating_sub(LAST_EVENTS)..].to_vec()
}

/// The options of a session, without its plan and private data.
fn describe(session: &Session) -> String {
    let mut brief = session.clone();
    brief.plan = crate::plan::Plan::default();
    for profile in &mut brief.profiles {
        profile.private_data.clear();
    }
    format!(
        "{:?} {:?} reset_after {:?}",
        brief.profiles, brief.links, brief.reset_after
    )
}

#[cfg(test)]
mod tests;
