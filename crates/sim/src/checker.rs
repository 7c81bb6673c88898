//! Independent judges of a finished session: they know what was posted and what was reported, nothing in between.
//! Each promises to accept every lawful outcome and to name the first unlawful one in a sentence.
//! They refuse to trust the actors: what should have happened is computed from the plan by a naive model.

pub mod bytes;
pub mod leaks;
pub mod model;
pub mod once;
pub mod order;
pub mod startup;

use crate::world::Transcript;

/// A verdict: fine, or why not.
pub type Verdict = Result<(), String>;

/// A judge of one property.
pub type Checker = fn(&Transcript) -> Verdict;

/// Every checker with its name.
pub const ALL: [(&str, Checker); 5] = [
    ("startup", startup::check),
    ("leaks", leaks::check),
    ("order", order::check),
    ("once", once::check),
    ("bytes", bytes::check),
];

/// The first objection of any checker.
pub fn check(transcript: &Transcript) -> Verdict {
    for (name, check) in ALL {
        check(transcript).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
