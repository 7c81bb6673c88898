//! `verbena check`: what the libraries report about the use of verbs by programs that the command starts (docs/check.md). Each process writes a file of its
//! own into a folder of the command. What is in it may come from a malicious program: it is bounded, and printed without control characters.

pub mod explain;
pub mod finding;
pub mod folder;
pub mod record;
pub mod suppress;
pub mod symbols;

use std::fmt::Write as _;

use serde_json::{Value, json};

pub use self::finding::{Finding, Stack};
use self::record::Record;
use self::suppress::Suppressions;
use self::symbols::Symbols;
use crate::events::printable;

/// Processes at most.
pub const MAX_PROCESSES: usize = 4096;
/// Reports of all processes at most.
pub const MAX_FINDINGS: usize = 10_000;

/// A process that has used verbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// It has ended by `exit`, and what it left was checked.
    pub ended: bool,
    /// Reports beyond the limit of a process.
    pub dropped: u64,
}

/// Everything that was reported until now.
#[derive(Default)]
pub struct Findings {
    /// In the order in which they were read.
    pub all: Vec<Finding>,
    /// In the order in which they began.
    pub processes: Vec<Process>,
    /// Lines of the files that are no reports, and reports beyond the limits.
    pub lost: u64,
    symbols: Symbols,
}

impl Findings {
    /// Adds a line of the file of this process; the index of a new finding.
    pub fn add(&mut self, pid: u32, line: &[u8], rules: &mut Suppressions) -> Option<usize> {
        let Some(record) = Record::parse(line) else {
            self.lost += 1;
            return None;
        };
        match record {
            Record::Begin { program } => {
                if self.processes.len() >= MAX_PROCESSES {
                    self.lost += 1;
                    return None;
                }
                self.processes.push(Process {
                    pid,
                    program: printable(&program),
                    ended: false,
                    dropped: 0,
                });
                None
            }
            Record::Count { number, count } => {
                // A process that became another program by `exec` counts anew.
                let mut same = self.all.iter_mut().rev();
                if let Some(known) = same.find(|known| known.pid == pid && known.number == number) {
                    known.count = known.count.max(count);
                }
                None
            }
            Record::End { dropped } => {
                if let Some(process) = self.last(pid) {
                    process.ended = true;
                    process.dropped = dropped;
                }
                None
            }
            Record::Report {
                number,
                kind,
                hint,
                what,
                stacks,
            } => {
                if self.all.len() >= MAX_FINDINGS {
                    self.lost += 1;
                    return None;
                }
                let program = self.last(pid).map(|process| process.program.clone());
                let stacks = stacks.iter().map(|(label, frames)| Stack {
                    label: printable(label),
                    places: self.symbols.places(frames),
                });
                let mut finding = Finding {
                    pid,
                    program: program.unwrap_or_default(),
                    kind: printable(&kind),
                    hint,
                    what: printable(&what),
                    stacks: stacks.collect(),
                    count: 1,
                    suppressed: None,
                    number,
                };
                finding.suppressed = rules.find(&finding);
                self.all.push(finding);
                Some(self.all.len() - 1)
            }
        }
    }

    fn last(&mut self, pid: u32) -> Option<&mut Process> {
        let mut latest = self.processes.iter_mut().rev();
        latest.find(|process| process.pid == pid)
    }

    /// Errors that are not suppressed.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        let all = self.all.iter();
        all.filter(|finding| !finding.hint && finding.suppressed.is_none())
    }

    /// Hints that are not suppressed.
    pub fn hints(&self) -> impl Iterator<Item = &Finding> {
        let all = self.all.iter();
        all.filter(|finding| finding.hint && finding.suppressed.is_none())
    }

    /// What was found, in a few lines.
    pub fn summary(&self, hints_shown: bool) -> String {
        let (errors, hints) = (self.errors().count(), self.hints().count());
        let suppressed = self.all.iter().filter(|f| f.suppressed.is_some()).count();
        let mut text = format!(
            "verbena check: {errors} errors, {hints} hints{}, {suppressed} suppressed, in {} processes that used verbs\n",
            if hints > 0 && !hints_shown {
                " (--hints shows them)"
            } else {
                ""
            },
            self.processes.len()
        );
        let mut kinds: Vec<&str> = self.errors().map(|finding| finding.kind.as_str()).collect();
        kinds.sort_unstable();
        for same in kinds.chunk_by(|a, b| a == b) {
            let of_kind = self.errors().filter(|finding| finding.kind == same[0]);
            let times: u64 = of_kind.map(|finding| finding.count).sum();
            let _ = writeln!(
                text,
                "  {}: {} places, {times} times; verbena check --explain {}",
                same[0],
                same.len(),
                same[0]
            );
        }
        for process in self.processes.iter().filter(|process| !process.ended) {
            let (pid, program) = (process.pid, &process.program);
            let _ = writeln!(
                text,
                "  process {pid} ({program}) was not checked for what it left: it still runs, became another program, or ended by a signal or _exit"
            );
        }
        let lost = self.lost
            + self
                .processes
                .iter()
                .map(|process| process.dropped)
                .sum::<u64>();
        if lost > 0 {
            let _ = writeln!(text, "  {lost} further reports are not shown");
        }
        text
    }

    /// The same as an object.
    pub fn summary_json(&self) -> Value {
        let processes = self.processes.iter().map(|process| {
            json!({"pid": process.pid, "program": process.program, "ended": process.ended, "dropped": process.dropped})
        });
        json!({
            "summary": true,
            "errors": self.errors().count(),
            "hints": self.hints().count(),
            "suppressed": self.all.iter().filter(|f| f.suppressed.is_some()).count(),
            "lost": self.lost,
            "processes": processes.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
