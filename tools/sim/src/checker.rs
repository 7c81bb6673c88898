//! Independent checkers of a finished session: they know what was posted and what was reported, nothing in between.
//! Each accepts every valid outcome and reports the first invalid one in a sentence. The expected outcome is computed from the plan by
//! a simple model, not by the actors.

pub mod bytes;
pub mod leaks;
pub mod model;
pub mod once;
pub mod order;
pub mod startup;

use crate::world::Transcript;

/// Fine, or why not.
pub type Verdict = Result<(), String>;

/// A check of one property.
pub type Checker = fn(&Transcript) -> Verdict;

/// Every checker with its name.
pub const ALL: [(&str, Checker); 5] = [
    ("startup", startup::check),
    ("leaks", leaks::check),
    ("order", order::check),
    ("once", once::check),
    ("bytes", bytes::check),
];

/// The first error of any checker.
pub fn check(transcript: &Transcript) -> Verdict {
    for (name, check) in ALL {
        check(transcript).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
