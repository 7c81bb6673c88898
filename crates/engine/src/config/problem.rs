//! Problems of a configuration: key, value, where it was set, and what is accepted.
//! All problems are collected, one sentence each. No message repeats a secret; of a file only names of settings are repeated, because the
//! path may be that of a file which the reader of the message may not read.

use core::fmt;

use super::settings::KEYS;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a file, on a line.
    File(String, usize),
    /// In this environment variable.
    Environment(String),
    /// By the program.
    Call,
    /// By several settings that contradict each other.
    Together,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(name, line) => write!(f, "{name}, line {line}"),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Call => f.write_str("the program's call"),
            Origin::Together => f.write_str("settings taken together"),
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {key} = {value:?}: {remedy}")]
pub struct Problem {
    /// The key, as it was written; hidden if it stands in a file and is not the name of a setting.
    pub key: String,
    /// The value, as it was written; hidden if it is a secret, or stands in a file.
    pub value: String,
    /// Where it was set.
    pub origin: Origin,
    /// What is accepted.
    pub remedy: String,
}

impl Problem {
    pub(super) fn bad(key: &str, value: &str, origin: Origin, wants: impl fmt::Display) -> Problem {
        Problem {
            key: key.to_owned(),
            value: value.to_owned(),
            origin,
            remedy: format!("wanted is {wants}"),
        }
    }

    pub(super) fn together(key: &str, value: String, remedy: String) -> Problem {
        Problem {
            key: key.to_owned(),
            value,
            origin: Origin::Together,
            remedy,
        }
    }

    /// The value is left out: it may be a secret under a misspelt name.
    pub(super) fn unknown(key: &str, origin: Origin) -> Problem {
        let near = KEYS
            .iter()
            .map(|known| (distance(key, known.name), known.name))
            .min();
        let remedy = match near {
            Some((far, name)) if far <= 3 => {
                format!("there is no such setting; perhaps {name} was meant")
            }
            _ => "there is no such setting; docs/configuration.md lists them".to_owned(),
        };
        let key = match origin {
            Origin::File(..) => shown(key),
            _ => key,
        };
        Problem {
            key: key.to_owned(),
            value: "…".to_owned(),
            origin,
            remedy,
        }
    }

    pub(super) fn unreadable(name: &str, error: &std::io::Error) -> Problem {
        Problem {
            key: "VERBENA_CONFIG".to_owned(),
            value: name.to_owned(),
            origin: Origin::File(name.to_owned(), 0),
            remedy: format!("wanted is a file that can be read ({error})"),
        }
    }
}

/// A key of a file as messages show it: hidden unless it is the name of a setting.
pub(super) fn shown(key: &str) -> &str {
    let known = KEYS.iter().any(|known| known.name == key);
    if known { key } else { "…" }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub(super) fn note(&mut self, outcome: Result<(), Problem>) {
        self.0.extend(outcome.err());
    }

    pub(super) fn extend(&mut self, more: impl IntoIterator<Item = Problem>) {
        self.0.extend(more);
    }

    /// `made`, if there are no problems.
    pub(super) fn or<T>(self, made: T) -> Result<T, Problems> {
        if self.0.is_empty() {
            Ok(made)
        } else {
            Err(self)
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Problems {
        Problems(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Problems {}

/// Levenshtein distance: characters to insert, delete or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // A name longer than any setting is far from all of them; 64 characters are enough.
    for (i, a) in from.chars().take(64).enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&to) {
            let change = corner + usize::from(a != *b);
            corner = *cell;
            left = change.min(corner + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
