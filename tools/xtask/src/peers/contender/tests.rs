//! Every contender can be started, and both sides have the same parameters.

use super::super::case;
use super::*;

fn setting() -> Setting {
    Setting {
        address: "192.0.2.1".to_owned(),
        port: 21_000,
        loopback: true,
        worker: "/bin/worker".to_owned(),
        libraries: "/lib/dropin".to_owned(),
        seconds: 0.3,
        datagram: 65_507,
        segment: 4096,
    }
}

#[test]
fn commands_name_the_port_and_server_address() {
    for case in case::all(false, true) {
        let commands = case.contender.commands(case.measure, case.size, &setting());
        for side in [&commands.server, &commands.caller] {
            assert!(side.iter().any(|word| word.contains("21000")), "{side:?}");
            assert!(!side[0].is_empty());
        }
        let caller = &commands.caller;
        assert!(
            caller.iter().any(|word| word.contains("192.0.2.1")),
            "{caller:?}"
        );
    }
}

#[test]
fn every_program_has_a_package() {
    for case in case::all(false, true) {
        let commands = case.contender.commands(case.measure, case.size, &setting());
        let program = commands.caller[0].as_str();
        let known = program == "/bin/worker"
            || program.starts_with("ib_")
            || PROGRAMS.iter().any(|(name, _)| *name == program);
        assert!(known, "{program}");
    }
}

#[test]
fn contender_names_are_unique_per_measure() {
    for measure in [
        Latency,
        Bandwidth,
        Rate,
        Connections,
        Idle,
        RoceLatency,
        RoceBandwidth,
        ShmLatency,
        ShmBandwidth,
        ShmRate,
    ] {
        let mut names: Vec<&str> = CONTENDERS
            .iter()
            .filter(|c| c.measures(measure, 64 << 10))
            .map(|c| c.name)
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{measure:?}");
    }
}

#[test]
fn iteration_counts_follow_the_duration() {
    assert_eq!(count(Latency, 8, 0.3), 4_992);
    assert!((3_500..4_000).contains(&count(Latency, 64 << 10, 0.1)));
    assert_eq!(count(Latency, 64 << 20, 0.1), 64);
    assert!(count(Bandwidth, 64 << 10, 0.3) > 10_000);
    assert_eq!(
        count(Rate, 64, 0.15) % LIST,
        0,
        "perftest refuses half a list"
    );
    assert_eq!(depth(Rate, 64), 128);
    assert_eq!(depth(Bandwidth, 4 << 20), 8);
}
