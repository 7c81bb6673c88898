//! `verbena trace`: events of running programs as Chrome trace-event JSON, for Perfetto and chrome://tracing. They come from rings in memory that the adapters
//! write and this process can only read; no program waits. What a program writes there is checked, its memory here is limited, and only checked names of
//! it reach the terminal or the file.

mod frames;
mod model;
pub mod output;
pub mod summary;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena::unstable::timestamp;
use verbena::unstable::trace::NAME;
use verbena::unstable::trace::client::{Trace, TraceError};
use verbena::unstable::trace::record::{Record, Words};
use verbena::unstable::trace::rings::EVENTS;

use crate::events::{Error as WatchError, adapters_of, printable, processes_with, program};
use crate::objects::objects;
use crate::pcap::is_descendant;
use model::Model;
use output::Output;
use summary::Summary;

/// How often empty rings are looked at.
const POLL: Duration = Duration::from_millis(1);
/// How often further adapters are looked for, and the file is made whole.
const LOOK: Duration = Duration::from_millis(20);
const FLUSH: Duration = Duration::from_secs(1);
/// How long events wait for earlier ones of other threads.
const SETTLE: u64 = 20_000_000;
/// Events of one adapter that are read before the next one has its turn.
const BATCH: usize = 1 << 15;
/// Events that are written before the rings are read again: reading must not fall behind.
const WRITTEN: usize = 1 << 12;
/// Events that wait, which is 200 MB.
const MAX_WAITING: usize = 1 << 21;
/// Turns of reading at the end, which are enough for full rings.
const LAST_TURNS: usize = 64;
/// Threads whose names are written.
const MAX_THREADS: usize = 1 << 16;
/// Adapters that are traced at once.
const MAX_SOURCES: usize = 256;
/// Events of a ring at least and at most.
pub const MIN_EVENTS: u32 = *EVENTS.start();
/// The largest ring.
pub const MAX_EVENTS: u32 = *EVENTS.end();

const _: () = assert!(size_of::<Words>() == 64);

/// What is traced.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The processes.
    pub pids: Vec<u32>,
    /// A queue pair, by any of its numbers; of the only process.
    pub qp: Option<u64>,
    /// Adapters that are opened later, and processes that these start, are traced, too.
    pub follow: bool,
    /// Events of a ring, a power of two.
    pub events: u32,
    /// When it ends.
    pub seconds: Option<f64>,
}

/// Why a process cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceFailure {
    /// It cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// One of its adapters cannot be traced.
    #[error("process {pid} cannot be traced: {cause}")]
    Trace {
        /// Its id.
        pid: u32,
        /// The reason.
        cause: TraceError,
    },
    /// It has no such queue pair.
    #[error("process {pid} has no queue pair {qp}; `verbena devinfo {pid}` lists them")]
    NoQueuePair {
        /// Its id.
        pid: u32,
        /// The number.
        qp: u64,
    },
    /// The file cannot be written.
    #[error("the trace cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// What was traced of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Its adapter.
    pub adapter: u32,
    /// Events that were read.
    pub events: u64,
    /// Events that were overwritten before they were read.
    pub lost: u64,
    /// Events that were none.
    pub malformed: u64,
}

struct Source {
    number: u32,
    traced: Traced,
    trace: Trace,
    ended: bool,
}

/// Events that wait for earlier ones.
#[derive(Debug, Default)]
struct Waiting {
    /// Adapter, process and event, in order of time up to `sorted`; those before `begun` are written.
    all: Vec<(u32, u32, Record)>,
    sorted: usize,
    begun: usize,
}

impl Waiting {
    fn len(&self) -> usize {
        self.all.len() - self.begun
    }

    fn is_full(&self) -> bool {
        self.len() >= MAX_WAITING
    }

    /// Puts the new ones in order. They overlap with the last of the others only.
    fn sort(&mut self) {
        let new = self.all.get(self.sorted..).unwrap_or_default();
        if let Some(first) = new.iter().map(|(_, _, record)| record.nanos).min() {
            let old = &self.all[self.begun..self.sorted];
            let before = old.partition_point(|(_, _, record)| record.nanos <= first);
            self.all[self.begun + before..].sort_by_key(|(_, _, record)| record.nanos);
        }
        self.sorted = self.all.len();
    }

    /// The next one up to this time.
    fn take(&mut self, until: u64) -> Option<(u32, u32, Record)> {
        let next = self.all[..self.sorted].get(self.begun).copied();
        let next = next.filter(|(_, _, record)| record.nanos <= until);
        self.begun += usize::from(next.is_some());
        // Moved rarely: at least as many have been written.
        if self.begun > self.all.len() / 2 {
            self.all.drain(..self.begun);
            self.sorted -= self.begun;
            self.begun = 0;
        }
        next
    }
}

/// The result of a trace.
#[derive(Debug)]
pub struct Report {
    /// What was traced.
    pub traced: Vec<Traced>,
    /// Latencies.
    pub summary: Summary,
    /// Send requests that were posted, and completions of send requests.
    pub requests: (u64, u64),
    /// The file has reached its limit.
    pub is_full: bool,
}

/// A trace of some processes.
pub struct Session<'a> {
    plan: Plan,
    output: &'a mut Output,
    model: Model,
    sources: Vec<Source>,
    done: Vec<Traced>,
    known_pids: Vec<u32>,
    looked: Option<Instant>,
    waiting: Waiting,
    /// Threads whose names were looked for.
    threads: HashSet<(u32, u32)>,
    /// Some events are to be written although there are new ones, for the file to follow.
    is_due: bool,
    /// The number in the adapter of the queue pair that is traced.
    only: Option<u32>,
}

impl<'a> Session<'a> {
    /// Traces running processes; an error if one has no adapter, unless later ones are waited for.
    pub fn attach(plan: &Plan, output: &'a mut Output) -> Result<Session<'a>, TraceFailure> {
        let mut session = Session {
            plan: plan.clone(),
            output,
            model: Model::default(),
            sources: Vec::new(),
            done: Vec::new(),
            known_pids: Vec::new(),
            looked: None,
            waiting: Waiting::default(),
            threads: HashSet::new(),
            is_due: false,
            only: None,
        };
        if plan.follow {
            session.look()?;
            return Ok(session);
        }
        for pid in &plan.pids {
            program(*pid).ok_or(WatchError::NoProcess { pid: *pid })?;
            match plan.qp {
                Some(qp) => {
                    let (adapter, number) = session.find_qp(*pid, qp)?;
                    session.only = Some(number);
                    session.add(*pid, adapter)?;
                }
                None => {
                    for adapter in adapters_of(*pid, NAME)? {
                        session.add(*pid, adapter)?;
                    }
                }
            }
        }
        Ok(session)
    }

    /// Adapters that are traced.
    pub fn adapters(&self) -> usize {
        self.sources.len()
    }

    /// The adapter of a queue pair, and its number there.
    fn find_qp(&mut self, pid: u32, qp: u64) -> Result<(u32, u32), TraceFailure> {
        let missing = || TraceFailure::NoQueuePair { pid, qp };
        let all = objects(pid)?;
        let found = all.iter().find(|object| {
            let has = |key: &&str| object.number(key) == Some(qp);
            ["qp", "wait"].contains(&object.kind.as_str())
                && ["number", "wc_qpn", "qpn"].iter().any(has)
        });
        let found = found.ok_or_else(missing)?;
        let number = found.number("number").and_then(|n| u32::try_from(n).ok());
        let number = number.ok_or_else(missing)?;
        // Its number in completions may be in any of its lines.
        let same = |object: &&crate::objects::Object| {
            object.adapter == found.adapter && object.number("number") == Some(number.into())
        };
        let wc_qpn = all
            .iter()
            .filter(same)
            .find_map(|object| object.number("wc_qpn").or(object.number("qpn")));
        let wc_qpn = wc_qpn.and_then(|n| u32::try_from(n).ok());
        self.model.only = Some(wc_qpn.unwrap_or(number));
        Ok((found.adapter, number))
    }

    fn add(&mut self, pid: u32, adapter: u32) -> Result<(), TraceFailure> {
        let failed = |cause| TraceFailure::Trace { pid, cause };
        let events = self.plan.events.next_power_of_two();
        let trace = Trace::attach(pid, adapter, events, self.only).map_err(failed)?;
        let program = program(pid).unwrap_or_else(|| "?".to_owned());
        if !self.known_pids.contains(&pid) {
            self.known_pids.push(pid);
            self.output.metadata("process_name", pid, pid, &program)?;
        }
        let number = (self.sources.len() + self.done.len()) as u32;
        self.sources.push(Source {
            number,
            traced: Traced {
                pid,
                program,
                adapter,
                events: 0,
                lost: 0,
                malformed: 0,
            },
            trace,
            ended: false,
        });
        Ok(())
    }

    /// Attaches to adapters of the processes and of those that they started, which are not traced yet.
    fn look(&mut self) -> Result<(), TraceFailure> {
        self.looked = Some(Instant::now());
        let Ok(found) = processes_with(NAME) else {
            return Ok(());
        };
        for (pid, adapters) in found {
            if !self.plan.pids.iter().any(|of| is_descendant(pid, *of)) {
                continue;
            }
            for adapter in adapters {
                let is_it = |traced: &Traced| (traced.pid, traced.adapter) == (pid, adapter);
                let known = self.sources.iter().any(|source| is_it(&source.traced));
                let room = self.sources.len() + self.done.len() < MAX_SOURCES;
                if !known && room {
                    // Otherwise it has ended meanwhile, or another process traces it: the next look tries again.
                    if let Err(TraceFailure::Output(error)) = self.add(pid, adapter) {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Traces until `stopped` is set, the time is over, the processes have ended, or the file is full; `is_running` tells of a process that has no
    /// adapter yet, and `progress` gets a line now and then.
    pub fn run(
        mut self,
        stopped: &AtomicBool,
        mut is_running: impl FnMut() -> bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Report, TraceFailure> {
        let result = self.run_until(stopped, &mut is_running, &mut progress);
        let ended = self.end();
        result?;
        ended?;
        let is_full = self.output.is_full();
        Ok(Report {
            traced: self.done,
            requests: (self.model.posted, self.model.completed),
            summary: self.model.summary,
            is_full,
        })
    }

    fn run_until(
        &mut self,
        stopped: &AtomicBool,
        is_running: &mut impl FnMut() -> bool,
        progress: &mut impl FnMut(&str),
    ) -> Result<(), TraceFailure> {
        let begun = Instant::now();
        let mut flushed = begun;
        loop {
            let running = is_running();
            if self.plan.follow && self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
                self.look()?;
            }
            let any = self.turn(WRITTEN)?;
            let over = self
                .plan
                .seconds
                .is_some_and(|most| begun.elapsed().as_secs_f64() >= most);
            if stopped.load(Ordering::Relaxed) || over || self.output.is_full() {
                return Ok(());
            }
            if self.sources.is_empty() && !(self.plan.follow && running) {
                return Ok(());
            }
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                self.is_due = true;
                self.output.flush()?;
                let lost: u64 = self.sources.iter().map(|source| source.trace.lost()).sum();
                let (events, bytes) = (self.output.events(), self.output.bytes());
                progress(&format!(
                    "{} s: {events} events, {} MB, {lost} lost",
                    begun.elapsed().as_secs(),
                    bytes >> 20
                ));
            }
            if !any {
                std::thread::sleep(POLL);
            }
        }
    }

    /// Reads what is there, and writes at most so many events for which no earlier ones are expected; true if there was something.
    fn turn(&mut self, most: usize) -> Result<bool, TraceFailure> {
        let now = timestamp().monotonic;
        let mut any = false;
        for at in 0..self.sources.len() {
            any |= self.read(at, now)?;
        }
        self.waiting.sort();
        // While there is room, events of busy programs are formatted later: that takes longer than reading them.
        if !any || self.waiting.len() > MAX_WAITING / 2 || self.is_due {
            any |= self.write(now.saturating_sub(SETTLE), most)?;
            self.is_due = false;
        }
        let (ended, others) = core::mem::take(&mut self.sources)
            .into_iter()
            .partition(|source| source.ended);
        self.sources = others;
        self.done.extend(ended.into_iter().map(Source::finish));
        Ok(any)
    }

    fn read(&mut self, at: usize, now: u64) -> Result<bool, TraceFailure> {
        let source = &mut self.sources[at];
        // Before the rings are read: what was written before the end is found.
        let ended = source.trace.has_ended();
        for count in 0..BATCH {
            if self.waiting.is_full() {
                return Ok(true);
            }
            let Some(mut record) = source.trace.next_record() else {
                source.ended |= ended;
                return Ok(count > 0);
            };
            source.traced.events += 1;
            // The time of an event is behind it, but for a hostile program.
            record.nanos = record.nanos.min(now.saturating_add(SETTLE / 2));
            let (pid, tid) = (source.traced.pid, record.thread);
            self.waiting.all.push((source.number, pid, record));
            if self.threads.len() < MAX_THREADS
                && self.threads.insert((pid, tid))
                && let Some(name) = thread_name(pid, tid)
            {
                self.output.metadata("thread_name", pid, tid, &name)?;
            }
        }
        Ok(true)
    }

    /// Writes at most so many events up to this time; true if as many were there.
    fn write(&mut self, until: u64, most: usize) -> Result<bool, TraceFailure> {
        for _ in 0..most {
            let Some((source, pid, record)) = self.waiting.take(until) else {
                return Ok(false);
            };
            self.model.add((source, pid), &record, self.output)?;
        }
        Ok(true)
    }

    fn end(&mut self) -> Result<(), TraceFailure> {
        // What was written until now. Programs that go on writing do not keep this from ending.
        for _ in 0..LAST_TURNS {
            let before = self.waiting.len();
            self.turn(0)?;
            if self.waiting.len() < before + BATCH {
                break;
            }
        }
        // From here on the programs write nothing.
        let sources = core::mem::take(&mut self.sources);
        self.done.extend(sources.into_iter().map(Source::finish));
        while self.write(u64::MAX, WRITTEN)? && !self.output.is_full() {}
        self.model.finish(self.output)?;
        let sum = |of: fn(&Traced) -> u64| self.done.iter().map(of).sum::<u64>();
        let (lost, malformed) = (sum(|one| one.lost), sum(|one| one.malformed));
        let flows = self.output.flows();
        self.output.finish(&format!(
            ",\"lost\":{lost},\"malformed\":{malformed},\"flows\":{flows}"
        ))?;
        Ok(())
    }
}

impl Source {
    fn finish(self) -> Traced {
        Traced {
            lost: self.trace.lost(),
            malformed: self.trace.malformed(),
            ..self.traced
        }
    }
}

fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(printable(name.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests;
