//! Output of the command: status, help, and errors of arguments.

use crate::program::ping;
use crate::world::{CarrierKind, LAN, VERBENA, World, privileged};

fn run(words: &[&str]) -> (Option<i32>, String) {
    let runtime = std::env::temp_dir().join("verbena-split-absent");
    let mut command = std::process::Command::new(VERBENA);
    let ran = command.args(words).env("XDG_RUNTIME_DIR", runtime).output();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complained = String::from_utf8_lossy(&ran.stderr);
    (ran.status.code(), said + &complained)
}

#[test]
fn help_names_options_and_capabilities() {
    for (kind, words) in [
        (
            "host",
            [
                "--connect",
                "--tap",
                "--arrangement",
                "udp://",
                "CAP_NET_ADMIN",
                "unshare -Urn",
                "status",
            ],
        ),
        (
            "unit",
            [
                "--lan",
                "--lan-tap",
                "--listen",
                "ethernet://",
                "CAP_NET_RAW",
                "unshare -Urn",
                "status",
            ],
        ),
    ] {
        let (code, said) = run(&[kind, "--help"]);
        assert_eq!(code, Some(0), "{said}");
        for word in words {
            assert!(said.contains(word), "{kind}: {word}: {said}");
        }
        let (code, said) = run(&[kind, "status", "--help"]);
        assert!(code == Some(0) && said.contains("--json"), "{said}");
    }
}

#[test]
fn invalid_arguments_are_refused_with_reason() {
    let each: [(&[&str], &str); 6] = [
        (&["host"], "--connect"),
        (
            &["host", "--connect", "tcp://a", "--tap", "t"],
            "no such carrier",
        ),
        (
            &["host", "--connect", "a", "--tap", "t", "--arrangement", "d"],
            "a, b or c",
        ),
        (
            &[
                "host",
                "--connect",
                "a",
                "--tap",
                "t",
                "--mac",
                "01:00:5e:00:00:01",
            ],
            "cannot be a station",
        ),
        (&["unit", "--listen", "127.0.0.1"], "--lan"),
        (
            &["unit", "--lan", "a", "--lan-tap", "b", "--listen", "c"],
            "cannot be used with",
        ),
    ];
    for (words, what) in each {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
    }
}

#[test]
fn status_without_driver_fails() {
    for kind in ["host", "unit"] {
        let (code, said) = run(&[kind, "status"]);
        assert_eq!(code, Some(1));
        assert!(
            said.contains(&format!("no {kind} driver of this user runs")),
            "{said}"
        );
    }
    let (code, said) = run(&["host", "status", "net7"]);
    assert!(code == Some(1) && said.contains("host-net7"), "{said}");
}

#[test]
fn status_prints_text_and_json() {
    privileged("command_output::status_prints_text_and_json", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let mut unit = world.start_unit(&[]);
        let host = world.bring_up(1, "b");
        ping(world.host(1), LAN, 50);
        let text = |words: &[&str]| {
            let ran = world.run_command(words);
            assert!(ran.status.success(), "{words:?}");
            String::from_utf8(ran.stdout).unwrap()
        };
        let said = text(&["host", "status"]);
        for what in [
            "net1 (process ",
            ": up",
            "iwarp://10.77.1.1:7471 (arrangement B)",
            "MTU 1500, link up",
        ] {
            assert!(said.contains(what), "{what}: {said}");
        }
        let said = text(&["unit", "status"]);
        for what in [
            "lan0 (process ",
            "link up, MTU 1500",
            "hosts         1",
            "host1 (10.77.1.2",
            "iwarp, arrangement B): up",
        ] {
            assert!(said.contains(what), "{what}: {said}");
        }
        let status = world.status("host", "net1");
        assert_eq!(status["pid"], host.pid());
        assert!(status["frames_out"].as_u64() >= Some(50), "{status}");
        let at_unit = &world.status("unit", "lan0")["hosts"][0];
        assert_eq!(at_unit["mac"], status["mac"]);
        assert!(
            at_unit["counts"]["frames_in"].as_u64() >= Some(50),
            "{at_unit}"
        );
        // All of them, one line each.
        let lines = text(&["host", "status", "--json"]);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        // A killed one leaves its socket, and is not shown.
        unit.kill();
        assert_eq!(world.run_command(["unit", "status"]).status.code(), Some(1));
    });
}
