//! The connection manager with the usual personality.

mod cm_flows;
mod common;

/// What the process is set to.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_PERSONALITY", "roce"),
    ("VERBENA_STARTUP_TIMEOUT", "1s"),
];
