//! What is wrong with a configuration: the key, the value, where it was said, and what would be right.
//! It promises one sentence per problem, and all problems at once.
//! It refuses to repeat secrets, and of a file it repeats nothing but names of settings: the file may be another one, which who
//! reads the message may not read.

use core::fmt;

use super::settings::KEYS;

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a file, on a line.
    File(String, usize),
    /// In this variable of the environment.
    Environment(String),
    /// By the program.
    Call,
    /// By several settings together.
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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {key} = {value:?}: {remedy}")]
pub struct Problem {
    /// The key, as it was written; hidden if it stands in a file and is no setting's name.
    pub key: String,
    /// The value, as it was written; hidden if it is a secret, or stands in a file.
    pub value: String,
    /// Where.
    pub origin: Origin,
    /// What would be right.
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

/// A key of a file as messages may show it.
pub(super) fn shown(key: &str) -> &str {
    let known = KEYS.iter().any(|known| known.name == key);
    if known { key } else { "…" }
}

/// All that is wrong.
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

    /// What was made, if nothing is wrong with it.
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

/// Letters to add, drop or change to get from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // Longer words than any of ours are far from all of them, and need not be measured in full.
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
