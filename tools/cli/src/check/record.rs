//! A line that a checked process writes: what it reports, or that it begins or ends. Lengths and counts are bounded before anything is kept.

use serde::Deserialize;

/// Bytes of a line at most.
pub const LONGEST: usize = 256 << 10;
/// Stacks of a report, and frames of a stack, at most.
const MOST_STACKS: usize = 8;
const MOST_FRAMES: usize = 64;
/// Characters of a text at most.
const LONGEST_TEXT: usize = 1024;

/// Where a frame is: in this file, so far from where its offset 0 is mapped.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Frame {
    /// Empty for memory that is of no file.
    pub file: String,
    /// An address if there is no file.
    pub offset: u64,
}

#[derive(Deserialize)]
struct RawStack {
    label: String,
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Raw {
    Begin {
        program: String,
    },
    Report {
        number: u64,
        kind: String,
        hint: bool,
        what: String,
        stacks: Vec<RawStack>,
    },
    Count {
        number: u64,
        count: u64,
    },
    End {
        dropped: u64,
    },
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    /// A process, or a program in it, uses verbs from now on.
    Begin {
        /// The name of its file.
        program: String,
    },
    /// Something is wrong.
    Report {
        /// Its number in the process.
        number: u64,
        /// The name of its kind.
        kind: String,
        /// Whether it is a hint.
        hint: bool,
        /// What is wrong.
        what: String,
        /// Where: a label and the frames.
        stacks: Vec<(String, Vec<Frame>)>,
    },
    /// It happened so often.
    Count {
        /// The number of the report.
        number: u64,
        /// Times.
        count: u64,
    },
    /// What the process leaves was checked.
    End {
        /// Reports beyond the limit.
        dropped: u64,
    },
}

fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((at, _)) => text[..at].to_owned(),
        None => text,
    }
}

impl Record {
    /// Parses a line; none if it is wrong or too long.
    pub fn parse(line: &[u8]) -> Option<Record> {
        if line.len() > LONGEST {
            return None;
        }
        Some(match serde_json::from_slice(line).ok()? {
            Raw::Begin { program } => Record::Begin {
                program: cut(program),
            },
            Raw::Count { number, count } => Record::Count { number, count },
            Raw::End { dropped } => Record::End { dropped },
            Raw::Report {
                number,
                kind,
                hint,
                what,
                stacks,
            } => {
                let stacks = stacks.into_iter().take(MOST_STACKS).map(|stack| {
                    let frames = stack.frames.into_iter().take(MOST_FRAMES);
                    (cut(stack.label), frames.collect())
                });
                Record::Report {
                    number,
                    kind: cut(kind),
                    hint,
                    what: cut(what),
                    stacks: stacks.collect(),
                }
            }
        })
    }
}
