//! A report of a checked process, with its stacks looked up. All texts are without control characters.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::symbols::Place;

/// A stack of a report, and what was done there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// What was done there.
    pub label: String,
    /// From the innermost on.
    pub places: Vec<Place>,
}

/// A report of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The name of the kind.
    pub kind: String,
    /// It is a hint, not an error.
    pub hint: bool,
    /// What is wrong, with the numbers.
    pub what: String,
    /// Where.
    pub stacks: Vec<Stack>,
    /// How often it happened.
    pub count: u64,
    /// The rule that suppresses it, by its number.
    pub suppressed: Option<usize>,
    /// Its number in the process.
    pub(super) number: u64,
}

impl Finding {
    /// The report as a text of several lines.
    pub fn text(&self) -> String {
        let (pid, program, kind) = (self.pid, &self.program, &self.kind);
        let level = if self.hint { "hint" } else { "error" };
        let mut text = format!(
            "process {pid} ({program}): {level}: {kind}\n  {}\n",
            self.what
        );
        for stack in &self.stacks {
            // A String takes everything.
            let _ = writeln!(text, "  {}:", stack.label);
            for place in &stack.places {
                let _ = writeln!(text, "    {place}");
            }
        }
        text
    }

    /// The report as an object.
    pub fn json(&self) -> Value {
        let stacks = self.stacks.iter().map(|stack| {
            let frames: Vec<Value> = stack.places.iter().map(Place::json).collect();
            json!({"label": stack.label, "frames": frames})
        });
        json!({
            "kind": self.kind,
            "level": if self.hint { "hint" } else { "error" },
            "pid": self.pid,
            "program": self.program,
            "what": self.what,
            "count": self.count,
            "suppressed": self.suppressed.is_some(),
            "stacks": stacks.collect::<Vec<_>>(),
        })
    }
}
