//! The connection manager as an honest iWARP adapter has it.

mod cm_flows;
mod common;

/// What the process is set to.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_PERSONALITY", "iwarp"),
    ("VERBENA_STARTUP_TIMEOUT", "1s"),
];
