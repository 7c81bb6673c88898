//! Problems of a configuration: key, value, where it was set, and what is accepted.
//! All problems are collected, one sentence each. No message repeats a secret; of a file only names of settings are repeated, because the
//! path may be that of a file which the reader of the message may not read.

use core::fmt;

use super::settings::KEYS;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// In a file, on a line.
    File(String, usize),
    /// In this environment variable.
    Environment(String),
    /// By the program.
    Call,
    /// By several settings that contradict each other.
    Contradiction,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::File(name, line) => write!(f, "{name}, line {line}"),
            SettingOrigin::Environment(name) => write!(f, "environment variable {name}"),
            SettingOrigin::Call => f.write_str("the program's call"),
            SettingOrigin::Contradiction => f.write_str("settings taken together"),
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {key} = {value:?}: {remedy}")]
pub struct ConfigError {
    /// The key, as it was written; hidden if it stands in a file and is not the name of a setting.
    pub key: String,
    /// The value, as it was written; hidden if it is a secret, or stands in a file.
    pub value: String,
    /// Where it was set.
    pub origin: SettingOrigin,
    /// What is accepted.
    pub remedy: String,
}

impl ConfigError {
    pub(super) fn invalid(
        key: &str,
        value: &str,
        origin: SettingOrigin,
        wants: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            value: value.to_owned(),
            origin,
            remedy: format!("expected {wants}"),
        }
    }

    pub(super) fn contradiction(key: &str, value: String, remedy: String) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            value,
            origin: SettingOrigin::Contradiction,
            remedy,
        }
    }

    /// The value is left out: it may be a secret under a misspelt name.
    pub(super) fn unknown(key: &str, origin: SettingOrigin) -> ConfigError {
        let near = KEYS
            .iter()
            .map(|known| (distance(key, known.name), known.name))
            .min();
        let remedy = match near {
            Some((far, name)) if far <= 3 => {
                format!("unknown setting; did you mean {name}?")
            }
            _ => "unknown setting; docs/configuration.md lists them".to_owned(),
        };
        let key = match origin {
            SettingOrigin::File(..) => redact_key(key),
            _ => key,
        };
        ConfigError {
            key: key.to_owned(),
            value: "…".to_owned(),
            origin,
            remedy,
        }
    }

    pub(super) fn unreadable(name: &str, error: &std::io::Error) -> ConfigError {
        ConfigError {
            key: "VERBENA_CONFIG".to_owned(),
            value: name.to_owned(),
            origin: SettingOrigin::File(name.to_owned(), 0),
            remedy: format!("expected a file that can be read ({error})"),
        }
    }
}

/// A key of a file as messages show it: hidden unless it is the name of a setting.
pub(super) fn redact_key(key: &str) -> &str {
    let known = KEYS.iter().any(|known| known.name == key);
    if known { key } else { "…" }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    pub(super) fn record(&mut self, outcome: Result<(), ConfigError>) {
        self.0.extend(outcome.err());
    }

    pub(super) fn extend(&mut self, more: impl IntoIterator<Item = ConfigError>) {
        self.0.extend(more);
    }

    /// `made`, if there are no problems.
    pub(super) fn into_result<T>(self, made: T) -> Result<T, ConfigErrors> {
        if self.0.is_empty() {
            Ok(made)
        } else {
            Err(self)
        }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(problem: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![problem])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

impl core::error::Error for ConfigErrors {}

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
