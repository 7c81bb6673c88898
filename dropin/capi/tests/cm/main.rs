//! The connection manager as C programs call it: streams in both personalities, datagrams, multicast groups, and hostile peers.
//! Settings are read once per process, so tests with other settings start themselves in a process of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../crates/engine/tests/common/tcp.rs"]
mod tcp;

mod datagrams;
mod groups;
mod hostile;
mod roce;
mod streams;

use std::process::Command;

/// Names the personality of a process; the default is `roce`.
const PERSONALITY: &str = "CM_TEST_PERSONALITY";

fn personality() -> String {
    std::env::var(PERSONALITY).unwrap_or_else(|_| "roce".to_owned())
}

/// Called first by every test.
fn begin() {
    common::streams::settings(&[
        ("VERBENA_PERSONALITY", &personality()),
        ("VERBENA_STARTUP_TIMEOUT", "1s"),
    ]);
}

/// All tests of `streams` again, in a process with the other personality.
#[test]
fn streams_pass_with_iwarp_personality() {
    let ran = Command::new(std::env::current_exe().unwrap())
        .arg("streams::")
        .env(PERSONALITY, "iwarp")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert!(!said.contains(" 0 passed"), "{said}");
}
