//! The flows of the connection manager with the default personality.

mod cm_flows;
mod common;
#[path = "../../../crates/engine/tests/common/tcp.rs"]
mod tcp;

/// Settings of the process.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("VERBENA_PERSONALITY", "roce"),
    ("VERBENA_STARTUP_TIMEOUT", "1s"),
];
