//! The attributes of channels (P2) and the form of indications (P7), chosen on the command line: real programs over each of them, and a
//! clear error where both sides, the arrangement or the carrier do not fit. Frames over connectionless channels fit one cell.

use std::process::Command;

use serde_json::Value;

use crate::program::{Running, ping, ping_with};
use crate::space::wait_until;
use crate::traffic::tcp;
use crate::world::{
    CarrierKind, LAN, LAN6, VERBENA, World, address, exclusive, in_parallel, privileged,
    runs_long_set,
};

macro_rules! kinds {
    ($($name:ident: $way:ident $arrangement:literal $delivery:literal $data:literal $runs:expr;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("channels::", stringify!($name));
            let (runs, test) = ($runs, || traffic(CarrierKind::$way, $arrangement, $delivery, $data));
            // Without acknowledgement, cells are lost where the receiver has no time.
            match $delivery {
                _ if !runs => {}
                "acknowledged" => privileged(name, test),
                _ => exclusive(name, test),
            }
        }
    )*};
}

// Those that an arrangement has by itself are in `traffic`.
kinds! {
    udp_a_acknowledged_connected: Udp "a" "acknowledged" "connected" true;
    udp_a_acknowledged_connectionless: Udp "a" "acknowledged" "connectionless" true;
    udp_a_unacknowledged_connectionless: Udp "a" "unacknowledged" "connectionless" runs_long_set();
    udp_b_acknowledged_connectionless: Udp "b" "acknowledged" "connectionless" true;
    udp_c_unacknowledged_connected: Udp "c" "unacknowledged" "connected" true;
    ethernet_a_unacknowledged_connectionless: Ethernet "a" "unacknowledged" "connectionless" true;
    ethernet_b_acknowledged_connectionless: Ethernet "b" "acknowledged" "connectionless" true;
}

fn traffic(way: CarrierKind, arrangement: &str, delivery: &str, data: &str) {
    let world = World::new(way, 2);
    // The unit requires it as well.
    let kinds = ["--delivery", delivery, "--data-channel", data];
    let _unit = world.start_unit(&kinds);
    let words = [&["--arrangement", arrangement], &kinds[..]].concat();
    let _one = world.bring_up_with(1, &words);
    let _two = world.bring_up_with(2, &words);
    let _iperf3 = world.serve_iperf3();
    ping(world.host(1), LAN, 500);
    ping(world.host(1), LAN6, 100);
    ping(world.host(1), &address(2), 200);
    tcp(&world, 1, LAN);
    let shown = match data {
        "connected" => format!("{delivery}, connected"),
        _ => format!("{delivery}, data connectionless"),
    };
    let unit = world.status("unit", "lan0");
    let guests = unit["hosts"].as_array().unwrap();
    assert_eq!(world.guests(), ["host1", "host2"]);
    let hosts = [1, 2].map(|n| world.status("host", &format!("net{n}")));
    for status in guests.iter().chain(&hosts) {
        assert_eq!(status["channels"], shown.as_str(), "{status}");
        assert_eq!(status["messages"]["violations"], 0, "{status}");
    }
    for host in &hosts {
        assert_eq!(host["connections"], 1, "{host}");
        // One cell holds a frame: the interface has a shorter MTU, and no offloads.
        let connectionless = data == "connectionless";
        assert_eq!(host["mtu"].as_u64() < Some(1500), connectionless, "{host}");
        let offloads = host["offloads"].as_array().unwrap();
        assert_eq!(offloads.is_empty(), connectionless, "{host}");
    }
}

/// E7: over cells the channels raise events, if they are asked to.
#[test]
fn channel_events_are_shown_over_cells() {
    privileged("channels::channel_events_are_shown_over_cells", || {
        let world = World::new(CarrierKind::Udp, 1);
        let unit = world.start_unit(&["--channel-events"]);
        let host = world.bring_up_with(1, &["--channel-events"]);
        for (driver, space, log) in [
            (&host, world.host(1), "host-events.log"),
            (&unit, &world.unit, "unit-events.log"),
        ] {
            let line = format!("exec {VERBENA} events {}", driver.pid());
            let events = Running::sh(space, &line, &world.folder.file(log));
            wait_until("packets are shown", || {
                ping(world.host(1), LAN, 20);
                let said = events.output();
                said.lines()
                    .any(|line| line.contains("returned") && line.contains("channel=1"))
            });
        }
    });
}

/// A longer cell carries the LAN's MTU, in IP fragments.
#[test]
fn long_cells_carry_whole_frames() {
    privileged("channels::long_cells_carry_whole_frames", || {
        let world = World::new(CarrierKind::Udp, 1);
        let _unit = world.start_unit(&[]);
        let _host = world.bring_up_with(1, &["--data-channel", "connectionless", "--cell", "1600"]);
        assert_eq!(world.status("host", "net1")["mtu"], 1500);
        ping(world.host(1), LAN, 50);
        ping_with(world.host(1), &format!("-i 0 -M do -s 1472 {LAN}"), 50);
    });
}

/// What the unit does not accept is rejected with the option that is missing, and the host keeps dialling.
#[test]
fn mismatch_names_the_right_option() {
    privileged("channels::mismatch_names_the_right_option", || {
        let each: [(&[&str], &[&str], &str); 4] = [
            (
                &["--data-channel", "connectionless"],
                &[],
                "start the host with --data-channel connectionless",
            ),
            (
                &["--data-channel", "connected"],
                &["--data-channel", "connectionless"],
                "start the host with --data-channel connected",
            ),
            (
                &["--delivery", "acknowledged"],
                &["--arrangement", "a"],
                "start the host with --delivery acknowledged",
            ),
            (
                &["--delivery", "unacknowledged"],
                &[],
                "start the host with --delivery unacknowledged",
            ),
        ];
        in_parallel(each, |(at_unit, at_host, why)| {
            let world = World::new(CarrierKind::Udp, 1);
            let _unit = world.start_unit(at_unit);
            let mut host = world.start_host(1, at_host);
            host.wait_for_output(why);
            assert!(!host.has_exited());
            let status = world.status("unit", "lan0");
            assert!(status["rejected"].as_u64() > Some(0), "{status}");
            assert_eq!(status["hosts"], Value::Array(Vec::new()));
        });
    });
}

/// What cannot work is refused before an interface is created.
#[test]
fn impossible_choices_are_refused_with_reason() {
    let each: [(&str, &[&str], &str); 6] = [
        (
            "udp://a",
            &["--delivery", "unacknowledged"],
            "arrangement b needs acknowledged channels",
        ),
        (
            "udp://a",
            &["--arrangement", "c", "--data-channel", "connectionless"],
            "connectionless packets need arrangement a or b",
        ),
        (
            "iwarp://a",
            &["--data-channel", "connectionless"],
            "need udp:// or ethernet://",
        ),
        (
            "a",
            &["--arrangement", "a", "--delivery", "unacknowledged"],
            "need udp:// or ethernet://",
        ),
        (
            "a",
            &["--arrangement", "a", "--indication", "address"],
            "--indication needs arrangement b",
        ),
        (
            "a",
            &["--arrangement", "c", "--indication", "immediate"],
            "--indication needs arrangement b",
        ),
    ];
    for (unit, words, why) in each {
        let mut command = Command::new(VERBENA);
        command.args(["host", "--connect", unit, "--tap", "net0"]);
        let ran = command.args(words).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

/// P7: each side chooses the form for the packets that it sends, and takes every form.
#[test]
fn indication_has_the_chosen_form() {
    privileged("channels::indication_has_the_chosen_form", || {
        let forms = ["immediate", "element", "address"];
        let each = [
            (CarrierKind::Iwarp, 0, 2),
            (CarrierKind::Iwarp, 1, 0),
            (CarrierKind::Udp, 2, 1),
            (CarrierKind::Udp, 0, 2),
        ];
        in_parallel(each, |(way, from_host, from_unit)| {
            let world = World::new(way, 1);
            let _unit = world.start_unit(&["--indication", forms[from_unit]]);
            let _host = world.bring_up_with(1, &["--indication", forms[from_host]]);
            ping(world.host(1), LAN, 200);
            let host = world.status("host", "net1");
            let guest = &world.status("unit", "lan0")["hosts"][0];
            for (status, form) in [(&host, from_host), (guest, from_unit)] {
                let count = |key: &str| status["messages"][key].as_u64().unwrap();
                let (immediates, messages) = (count("immediates_out"), count("indications_out"));
                // Frames that fit neither pool nor element number of 8 bits do not occur with 256 elements.
                match forms[form] {
                    "immediate" => assert!(immediates >= 200 && messages == 0, "{status}"),
                    _ => assert!(immediates == 0 && messages >= 200, "{status}"),
                }
                assert_eq!(count("violations"), 0, "{status}");
            }
        });
    });
}
