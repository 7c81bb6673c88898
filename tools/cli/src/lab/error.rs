//! Failures of labs and software switches. A message names the value that is wrong, and the limit of the system where there is one.

use std::io;

/// A failure, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LabError(pub String);

impl LabError {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> LabError {
        LabError(text.into())
    }
}

impl From<verbena_fabric::Misuse> for LabError {
    fn from(error: verbena_fabric::Misuse) -> LabError {
        LabError(error.to_string())
    }
}

/// Names what failed, for `map_err`.
pub(crate) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> LabError {
    let what = what.into();
    move |error| LabError(format!("{what}: {}", error.into()))
}
