//! A program that follows its side of a plan: what it may post now, and when it has to be called again.
//! It keeps the plan's order, conditions, gaps and depth, and does not react to reports in any other way.

use verbena_stream::Time;

use crate::plan::{Gate, Side};
use crate::work::{Report, Work};

/// One side of a plan being executed.
#[derive(Debug)]
pub(super) struct Program {
    plan: Side,
    established: bool,
    finished: bool,
    posted: usize,
    supplied: usize,
    completed: usize,
    received: usize,
    refused: usize,
    last_post: Time,
    last_supply: Time,
}

impl Program {
    pub(super) fn new(plan: Side, now: Time) -> Program {
        Program {
            plan,
            established: false,
            finished: false,
            posted: 0,
            supplied: 0,
            completed: 0,
            received: 0,
            refused: 0,
            last_post: now,
            last_supply: now,
        }
    }

    /// Records a report; a gap counts from the time at which its condition is met.
    pub(super) fn handle(&mut self, report: &Report, now: Time) {
        let before = self.gates();
        self.note(report, now);
        let after = self.gates();
        if before.0 != after.0 {
            self.last_post = now;
        }
        if before.1 != after.1 {
            self.last_supply = now;
        }
    }

    /// Whether the conditions of the next work and of the next receive are met.
    fn gates(&self) -> (bool, bool) {
        let work = self.plan.works.get(self.posted);
        let supply = self.plan.receives.get(self.supplied);
        (
            work.is_some_and(|w| self.passed(w.gate)),
            supply.is_some_and(|s| self.passed(s.gate)),
        )
    }

    fn note(&mut self, report: &Report, now: Time) {
        match report {
            Report::Established { .. } => {
                self.established = true;
                self.last_post = now;
            }
            Report::Completed(..) => self.completed += 1,
            Report::Received(_) => self.received += 1,
            Report::NotReady => self.refused += 1,
            Report::NotEstablished(_) | Report::Closed(_) | Report::Terminated(_) => {
                self.finished = true;
            }
            Report::Violation(_) => self.finished = true,
            Report::Rnr(_) | Report::Ready(_) => {}
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    pub(super) fn is_done(&self) -> bool {
        self.established && self.completed == self.plan.works.len()
    }

    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    pub(super) fn supplied(&self) -> usize {
        self.supplied
    }

    pub(super) fn received(&self) -> usize {
        self.received
    }

    fn passed(&self, gate: Gate) -> bool {
        match gate {
            Gate::Open => true,
            Gate::Received(n) => self.received >= n,
            Gate::Completed(n) => self.completed >= n,
            Gate::Refused(n) => self.refused >= n,
        }
    }

    /// When the next work may be posted, if nothing but time is missing.
    fn work_due(&self) -> Option<Time> {
        let next = self.plan.works.get(self.posted)?;
        let free = self.posted - self.completed < self.plan.depth;
        let open = self.established && !self.finished && free && self.passed(next.gate);
        open.then(|| self.last_post + next.gap)
    }

    fn supply_due(&self) -> Option<Time> {
        let next = self.plan.receives.get(self.supplied)?;
        let open = !self.finished && self.passed(next.gate);
        open.then(|| self.last_supply + next.gap)
    }

    pub(super) fn next_work(&mut self, now: Time) -> Option<(u64, Work)> {
        self.work_due().filter(|&due| due <= now)?;
        let id = self.posted;
        self.posted += 1;
        self.last_post = now;
        Some((id as u64, self.plan.works[id].work.clone()))
    }

    pub(super) fn next_supply(&mut self, now: Time) -> Option<(u64, u32)> {
        self.supply_due().filter(|&due| due <= now)?;
        let id = self.supplied;
        self.supplied += 1;
        self.last_supply = now;
        Some((id as u64, self.plan.receives[id].capacity))
    }

    /// When to call again; a time that has come is not waited for.
    pub(super) fn next_moment(&self, now: Time) -> Option<Time> {
        let due = [self.work_due(), self.supply_due()];
        due.into_iter().flatten().filter(|&t| t > now).min()
    }
}
