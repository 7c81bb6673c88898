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

/// Set in a process whose connections are over RoCEv2.
const ROCE: &str = "CM_TEST_ROCE";

fn uses_roce() -> bool {
    std::env::var_os(ROCE).is_some()
}

/// Called first by every test.
fn begin() {
    let mut settings = vec![
        ("VERBENA_PERSONALITY", personality()),
        ("VERBENA_STARTUP_TIMEOUT", "1s".to_owned()),
    ];
    if uses_roce() {
        settings.push(("VERBENA_WIRE", "roce".to_owned()));
        settings.push(("VERBENA_DEVICE", "127.0.0.1".to_owned()));
    }
    let settings: Vec<_> = settings
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    common::streams::settings(&settings);
}

/// Tests that look at TCP sockets, use other addresses than the device's, expect private data of the same length, or use XRC.
const TCP_ONLY: &[&str] = &[
    "ipv6_",
    "afonly_option_",
    "peer_without_mpa_reply_",
    "private_data_and_ports_",
    "rejection_carries_",
    "synchronous_connect_returns_rejection_",
    "synchronous_endpoints_connect_",
    "destroyed_listener_rejects_waiting_",
    "type_of_service_",
    "xrc",
];

/// All tests of `streams` again, in a process with the other personality.
#[test]
fn streams_pass_with_iwarp_personality() {
    check_streams(Command::new(std::env::current_exe().unwrap()).env(PERSONALITY, "iwarp"));
}

/// The same, in a process whose connections are over RoCEv2.
#[test]
fn streams_pass_over_roce() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROCE, "yes");
    for test in TCP_ONLY {
        command.args(["--skip", test]);
    }
    check_streams(&mut command);
}

#[track_caller]
fn check_streams(command: &mut Command) {
    let ran = command.arg("streams::").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert!(!said.contains(" 0 passed"), "{said}");
}
