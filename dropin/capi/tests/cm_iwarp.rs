//! The flows of the connection manager with the `iwarp` personality.

mod cm_flows;
mod common;

/// Settings of the process.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_PERSONALITY", "iwarp"),
    ("VERBENA_STARTUP_TIMEOUT", "1s"),
];
