//! The command-line interface: summary, exit codes, help, and the capture.
//! Scripts rely on them. The seeds are tested elsewhere.

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_verbena-sim");
    Command::new(command).args(args).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn passing_run_prints_a_summary_and_exits_0() {
    let out = sim(&["--seed", "3", "--count", "2", "--verbose"]);
    assert_eq!(out.status.code(), Some(0));
    let said = text(&out.stdout);
    assert!(said.contains("seed 3: ") && said.contains("seed 4: "));
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("2 seeds passed, 0 failed: "), "{last}");
    for word in [
        "messages",
        "bytes",
        "RNRs",
        "resets",
        "flips",
        "virtual time",
    ] {
        assert!(last.contains(word), "{last}");
    }
}

#[test]
fn bad_usage_exits_with_2() {
    for args in [
        &["--seed", "x"][..],
        &["--workload", "nonsense"],
        &["--adapters", "--workload", "mixed"],
        &["--wire", "udp"],
        &["--wire", "roce", "--split"],
        &["capture"],
        &["--unknown"],
    ] {
        let out = sim(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(!out.stderr.is_empty());
    }
    let names = text(&sim(&["--workload", "nonsense"]).stderr);
    assert!(names.contains("request-response"), "{names}");
}

#[test]
fn unwritable_capture_prints_one_line() {
    let out = sim(&["capture", "--out", "/nonexistent/file.pcap"]);
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/nonexistent/file.pcap"));
}

#[test]
fn help_names_every_option() {
    let said = text(&sim(&["--help"]).stdout);
    for word in [
        "--seed",
        "--count",
        "--workload",
        "--adapters",
        "--wire",
        "--verbose",
        "capture",
        "EXIT CODES",
    ] {
        assert!(said.contains(word), "{word} is missing from\n{said}");
    }
}

#[test]
fn adapters_run_alone_or_after_the_workload() {
    let of = |args: &[&str]| connections(&text(&sim(args).stdout));
    let alone = of(&["--seed", "4", "--adapters"]);
    let peers = of(&["--seed", "4", "--workload", "mixed"]);
    assert!(alone > 0 && peers > 0);
    let both = of(&["--seed", "4"]);
    assert!(both > alone, "a seed runs both");
}

#[test]
fn one_wire_runs_alone() {
    let of = |args: &[&str]| text(&sim(args).stdout);
    let outputs = [
        of(&["--seed", "4", "--adapters"]),
        of(&["--seed", "4", "--wire", "tcp"]),
        of(&["--seed", "4", "--wire", "roce"]),
    ];
    let [both, tcp, roce] = outputs.each_ref().map(|output| {
        assert!(output.starts_with("1 seeds passed, 0 failed: "), "{output}");
        connections(output)
    });
    assert_eq!(both, tcp + roce);
    let has_packets = outputs.map(|output| output.contains(" packets"));
    assert_eq!(has_packets, [true, false, true]);
}

/// The number of connections in a summary.
fn connections(output: &str) -> u64 {
    let (_, rest) = output.split_once("failed: ").unwrap_or_default();
    let number = rest.split(' ').next().unwrap_or_default();
    number.parse().expect("a number of connections")
}
