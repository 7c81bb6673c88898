//! Why queue pairs failed or wait: what running processes tell over their sockets, and what ended ones left in a file.
//! A queue pair waits if nothing has moved between two looks. Everything that another process wrote is bounded in size and stripped of control
//! characters before it is shown.

mod advice;
mod left;
mod report;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::events::{Error, adapters_of, list, program};
use crate::objects::{Object, objects};
use verbena::unstable::monitor::objects::NAME;

pub use left::{Left, left};
pub use report::Finding;

/// The time between the two looks.
const BETWEEN: Duration = Duration::from_millis(250);

/// What happened to a queue pair, or to its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It failed.
    Failed,
    /// It waits.
    Waits,
    /// Its process ended without closing it.
    Killed,
    /// Its adapter failed.
    AdapterFailed,
    /// Its process does not answer.
    Silent,
}

/// What is to be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subject {
    /// One process, or all.
    pub pid: Option<u32>,
    /// One of its queue pairs, by any of its numbers.
    pub qp: Option<u64>,
}

impl std::str::FromStr for Subject {
    type Err = String;

    /// `PID` or `PID/QPN`.
    fn from_str(text: &str) -> Result<Subject, String> {
        let (pid, qp) = match text.split_once('/') {
            Some((pid, qp)) => (pid, Some(qp)),
            None => (text, None),
        };
        let wrong = |what: &str| format!("`{what}` is not a number; PID or PID/QPN is expected");
        let number = |text: &str| {
            let hex = text
                .strip_prefix("0x")
                .map(|hex| u64::from_str_radix(hex, 16));
            hex.unwrap_or_else(|| text.parse()).map_err(|_| wrong(text))
        };
        Ok(Subject {
            pid: Some(pid.parse().map_err(|_| wrong(pid))?),
            qp: qp.map(number).transpose()?,
        })
    }
}

/// The findings, and what was looked at.
#[derive(Debug, Default)]
pub struct Explanation {
    /// One for each queue pair that failed or waits.
    pub findings: Vec<Finding>,
    /// Processes that were looked at, and their queue pairs.
    pub looked_at: Vec<(u32, String, usize)>,
}

/// Explains queue pairs. An error if the one process that was asked for cannot be looked at and left nothing.
pub fn explain(subject: Subject) -> Result<Explanation, Error> {
    let (mut explained, mut refused) = (Explanation::default(), Ok(()));
    let mut running = match subject.pid {
        Some(pid) => vec![pid],
        None => list()?.iter().map(|process| process.pid).collect(),
    };
    running.retain(|pid| match is_stopped(*pid) {
        true if adapters_of(*pid, NAME).is_ok() => {
            explained.findings.push(Finding::silent(*pid));
            false
        }
        _ => true,
    });
    let mut first = BTreeMap::new();
    for pid in running {
        match objects(pid) {
            Ok(found) => {
                first.insert(pid, found);
            }
            Err(Error::Silent { pid }) => explained.findings.push(Finding::silent(pid)),
            Err(error) if subject.pid.is_some() => refused = Err(error),
            // It ended meanwhile, or belongs to another user.
            Err(_) => {}
        }
    }
    if first.values().flatten().any(|object| object.kind == "wait") {
        std::thread::sleep(BETWEEN);
    }
    for (pid, before) in &first {
        // One that ended in between is explained from the first look.
        let after = objects(*pid).unwrap_or_else(|_| before.clone());
        explained.add_running(*pid, before, &after);
    }
    for left in left(subject.pid) {
        explained.add_left(&left, subject.qp.is_some());
    }
    let of_subject = |finding: &Finding| subject.qp.is_none_or(|qp| finding.is_for(qp));
    explained.findings.retain(of_subject);
    if explained.looked_at.is_empty() && explained.findings.is_empty() {
        refused?;
    }
    Ok(explained)
}

impl Explanation {
    fn add_running(&mut self, pid: u32, before: &[Object], after: &[Object]) {
        let name = program(pid).unwrap_or_else(|| "?".to_owned());
        let pairs = after.iter().filter(|object| object.kind == "qp");
        self.looked_at.push((pid, name.clone(), pairs.count()));
        for object in after {
            let finding = match object.kind.as_str() {
                "adapter" if object.get("failure").is_some() => Verdict::AdapterFailed,
                "failure" if object.get("kind") != Some("requested") => Verdict::Failed,
                "wait" if stands_still(object, before, after) => Verdict::Waits,
                _ => continue,
            };
            let queues = queue_notes(object, after);
            let finding = Finding::new(finding, (pid, &name), object.clone(), queues);
            self.findings.push(finding);
        }
    }

    fn add_left(&mut self, left: &Left, one_each: bool) {
        if !left.runs {
            self.looked_at
                .push((left.pid, left.program.clone(), left.connections.len()));
        }
        let process = (left.pid, left.program.as_str());
        for failure in &left.failures {
            // A queue pair that still exists has been explained.
            let known = self
                .findings
                .iter()
                .any(|finding| finding.is_same(left.pid, failure));
            if !known {
                let finding = Finding::new(Verdict::Failed, process, failure.clone(), Vec::new());
                self.findings.push(finding);
            }
        }
        if left.runs {
            return;
        }
        // One finding for all of them, unless one is asked for.
        let shown = if one_each { usize::MAX } else { 1 };
        let others = left.connections.len().saturating_sub(shown);
        for connection in left.connections.iter().take(shown) {
            let note = (others > 0).then(|| format!("{others} more queue pairs were connected"));
            let note = note.into_iter().collect();
            let finding = Finding::new(Verdict::Killed, process, connection.clone(), note);
            self.findings.push(finding);
        }
    }
}

/// Nothing of the queue pair has changed between the two looks.
fn stands_still(wait: &Object, before: &[Object], after: &[Object]) -> bool {
    let same = |all: &[Object], kind: &str| {
        let number = wait.get("number");
        let found = all.iter().find(|object| {
            object.adapter == wait.adapter && object.kind == kind && object.get("number") == number
        });
        found.cloned()
    };
    let (Some(was), Some(qp_was), Some(qp)) =
        (same(before, "wait"), same(before, "qp"), same(after, "qp"))
    else {
        return false;
    };
    let unchanged =
        |a: &Object, b: &Object, keys: &[&str]| keys.iter().all(|key| a.get(key) == b.get(key));
    unchanged(&qp_was, &qp, &["messages_in", "messages_out", "bytes_in"])
        && unchanged(&was, wait, &["for", "request"])
}

/// What other objects add about a queue pair: faults that are set, completions that are not polled, and full queues.
fn queue_notes(object: &Object, all: &[Object]) -> Vec<String> {
    let of = |kind: &str, number: Option<u64>| {
        let here = |o: &&Object| o.adapter == object.adapter && o.kind == kind;
        all.iter()
            .filter(here)
            .find(|o| number.is_some() && o.number("number") == number)
    };
    let Some(qp) = of("qp", object.number("number")) else {
        return Vec::new();
    };
    let faults = all
        .iter()
        .find(|o| o.adapter == object.adapter && o.kind == "faults");
    let fired = faults.and_then(|faults| faults.number("fired"));
    let (send, receive) = (qp.number("send_cq"), qp.number("recv_cq"));
    let mut cqs = vec![(send, "send")];
    if send == receive {
        cqs[0].1 = "send and receive";
    } else {
        cqs.push((receive, "receive"));
    }
    let mut notes = Vec::new();
    if let Some(fired) = fired {
        notes.push(format!(
            "faults are set by `verbena faults`, and fired {fired} times in this process"
        ));
    }
    for (number, what) in cqs {
        let Some(cq) = of("cq", number) else { continue };
        let (waiting, entries) = (
            cq.number("waiting").unwrap_or(0),
            cq.number("entries").unwrap_or(0),
        );
        if cq.get("overflowed") == Some("true") {
            notes.push(format!(
                "its {what} completion queue overflowed ({entries} entries)"
            ));
        } else if waiting > 0 && waiting >= entries {
            notes.push(format!("its {what} completion queue is full ({entries} entries): the program does not poll it"));
        } else if waiting > 0 {
            notes.push(format!(
                "{waiting} completions in its {what} completion queue are not polled"
            ));
        }
    }
    notes
}

/// The process is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests;
