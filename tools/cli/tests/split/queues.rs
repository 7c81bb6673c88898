//! Drivers with several queues: flows are distributed, and all queues connect and disconnect together.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use verbena_split::lan::LinkWatch;

use crate::killed;
use crate::program::{Running, iperf3, ping};
use crate::space::wait_until;
use crate::world::{CarrierKind, LAN, SHORT, World, address, privileged};

const TWO: [&str; 2] = ["--queues", "2"];

/// TCP in both directions at once, 16 connections each: the probability that the kernel's hash puts all of them on one of two queues is
/// negligible.
fn many_connections(world: &World, n: usize, to: &str) {
    let report = iperf3(world.host(n), &format!("-c {to} -P 16"));
    for way in ["sum_received", "sum_received_bidir_reverse"] {
        let bytes = report["end"][way]["bytes"].as_u64().unwrap_or(0);
        assert!(bytes > 1_000_000, "{way}: {bytes} bytes: {}", report["end"]);
    }
}

/// Checks that each of both queues of a driver carried at least this number of frames in each direction, and saw no violations.
fn check_both_queues(world: &World, kind: &str, name: &str, frames: u64) {
    let statuses = world.statuses(kind, name);
    assert_eq!(statuses.len(), 2);
    for (queue, status) in statuses.iter().enumerate() {
        assert_eq!(status["queue"], queue, "{status}");
        assert_eq!(status["queues"], 2, "{status}");
        for way in ["frames_in", "frames_out"] {
            assert!(status[way].as_u64() >= Some(frames), "{way}: {status}");
        }
        let guests = status["hosts"].as_array();
        let links = guests.into_iter().flatten().chain([status]);
        for link in links.filter(|link| link["messages"].is_object()) {
            assert_eq!(link["messages"]["violations"], 0, "{status}");
            assert_eq!(link["phase"], "up", "{status}");
        }
    }
}

#[test]
fn both_queues_carry_iwarp_to_lan_tap() {
    privileged("queues::both_queues_carry_iwarp_to_lan_tap", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let _unit = world.start_unit_on(["--lan-tap", "own0"], &TWO);
        world.unit.ip(&format!("addr add {LAN}/24 dev own0"));
        world.unit.ip("link set own0 up");
        let host = world.bring_up_with(1, &TWO);
        host.wait_for_output("host: queue 2 of 2: connected to iwarp://10.77.1.1:7472");
        let _iperf3 = world.serve_iperf3_at(&world.unit);
        let _web = world.serve_web_at(&world.unit);
        ping(world.host(1), LAN, 200);
        many_connections(&world, 1, LAN);
        world.download(1);
        check_both_queues(&world, "host", "net1", 100);
        check_both_queues(&world, "unit", "own0", 100);
        // A second unit fails before it opens the interface.
        let watch = world.unit.run(|| LinkWatch::open().unwrap());
        // real time: the kernel may report a link change up to a second late.
        std::thread::sleep(Duration::from_millis(1500));
        watch.take_changed().unwrap();
        let words = ["unit", "--lan-tap", "own0", "--listen", "10.77.1.1:9000"];
        let another = || world.verbena().args(words).args(TWO).output().unwrap();
        let another = world.unit.run(another);
        let said = String::from_utf8_lossy(&another.stderr);
        assert_eq!(another.status.code(), Some(1), "{said}");
        assert!(said.contains("a driver is running already"), "{said}");
        assert!(!watch.take_changed().unwrap(), "it touched the interface");
    });
}

#[test]
fn both_queues_carry_udp_to_lan_interface() {
    privileged("queues::both_queues_carry_udp_to_lan_interface", || {
        let world = World::new(CarrierKind::Udp, 2);
        let _unit = world.start_unit(&TWO);
        let _one = world.bring_up_with(1, &TWO);
        let _two = world.bring_up_with(2, &[&TWO[..], &["--mac", "unit"]].concat());
        let _iperf3 = world.serve_iperf3();
        let _there = world.serve_iperf3_at(world.host(2));
        for n in [1, 2] {
            ping(world.host(n), LAN, 200);
            many_connections(&world, n, LAN);
        }
        check_both_queues(&world, "unit", "lan0", 100);
        ping(world.host(1), &address(2), 200);
        many_connections(&world, 1, &address(2));
        check_both_queues(&world, "host", "net1", 100);
        check_both_queues(&world, "host", "net2", 100);
        // The first queue got an address for all, and every queue tells the unit of a new one.
        wait_for_address(&world, 2);
        world.host(2).ip("link set net2 address 02:00:00:00:00:42");
        wait_for_address(&world, 2);
        ping(world.host(2), LAN, 50);
        assert_eq!(world.status("host", "net2")["mac"], "02:00:00:00:00:42");
    });
}

/// Waits until all queues of the unit have the address of a host's interface.
fn wait_for_address(world: &World, n: usize) {
    let name = format!("host{n}");
    wait_until("all queues know the address", || {
        let mac = &world.status("host", &format!("net{n}"))["mac"];
        let units = world.statuses("unit", "lan0");
        units.iter().all(|unit| {
            let mut hosts = unit["hosts"].as_array().unwrap().iter();
            hosts.any(|host| host["name"] == name.as_str() && host["mac"] == *mac)
        })
    });
}

/// Kills the host's driver, then the unit's, during a download; links go down with each and up again.
#[test]
fn killed_drivers_reconnect_all_queues() {
    privileged("queues::killed_drivers_reconnect_all_queues", || {
        let mut world = World::new(CarrierKind::Iwarp, 1);
        world.timeout = SHORT;
        world.make_persistent_for_several(1);
        killed::kill_each_side_in(&world, &TWO, &TWO);
    });
}

/// One queue loses its unit: the interface has no carrier, since the kernel would still put flows on that queue. The other queue stays.
#[test]
fn one_lost_queue_clears_the_carrier() {
    privileged("queues::one_lost_queue_clears_the_carrier", || {
        let mut world = World::new(CarrierKind::Udp, 1);
        // The other queue must not lose it, however busy the machine is.
        world.timeout = "5";
        let _unit = world.start_unit(&TWO);
        let _host = world.bring_up_with(1, &TWO);
        let connections = || {
            let queues = world.statuses("host", "net1");
            let each = queues.iter().map(|queue| queue["connections"].as_u64());
            each.collect::<Option<Vec<u64>>>().unwrap()
        };
        let host = world.host(1);
        host.ip("rule add pref 10 ipproto udp dport 7472 blackhole");
        wait_until("the second queue is lost", || {
            let queues = world.statuses("host", "net1");
            assert_eq!(queues.len(), 2);
            assert_eq!(queues[0]["phase"], "up", "{}", queues[0]);
            queues[1]["phase"] != "up"
        });
        wait_until("the cable is pulled", || !world.has_carrier(1));
        host.ip("rule del pref 10");
        world.wait_until_up(1);
        ping(world.host(1), LAN, 100);
        assert_eq!(connections(), [1, 2]);
    });
}

/// A host with another number of queues gets instructions.
#[test]
fn queue_counts_of_both_sides_must_match() {
    privileged("queues::queue_counts_of_both_sides_must_match", || {
        let mut world = World::new(CarrierKind::Udp, 1);
        world.timeout = SHORT;
        let mut unit = world.start_unit(&TWO);
        let rejected = |to: &str, queues: &str, why: &str| {
            // Earlier hosts wrote the same to the same file.
            let log = std::fs::read_to_string(world.folder.file("host1.log"));
            let before = log.map_or(0, |log| log.len());
            let mut host = world.start_host_at(1, to, &["--queues", queues]);
            wait_until(why, || host.output()[before..].contains(why));
            assert!(!world.has_carrier(1));
            // With SIGKILL, so that its sockets stay.
            host.kill();
        };
        let at = world.unit_for(1);
        let what_to_do = "this unit has 2 queues: start the host with --queues 2";
        rejected(&at, "3", what_to_do);
        rejected(&format!("{at}:7472"), "2", "was connected to queue 2 of 2");
        rejected(&at, "1", what_to_do);
        assert!(unit.output().contains(what_to_do), "{}", unit.output());
        let status = |words: &[&str]| {
            let said = world.run_command(words);
            assert!(said.status.success(), "{words:?}");
            String::from_utf8(said.stdout).unwrap()
        };
        // The killed ones had more queues, and left their sockets.
        let mut host = world.start_host(1, &[]);
        wait_until("it answers", || world.try_status("host", "net1").is_some());
        for words in [
            &["host", "status", "--json"][..],
            &["host", "status", "net1", "--json"],
        ] {
            assert_eq!(status(words).lines().count(), 1);
        }
        let said = status(&["host", "status"]);
        assert!(
            said.contains("net1 (process ") && !said.contains(", queue "),
            "{said}"
        );
        host.kill();
        // One with as many queues replaces them.
        let host = world.bring_up_with(1, &TWO);
        let said = status(&["host", "status", "net1"]);
        let places = [
            "net1, queue 1 of 2 (process ",
            "net1, queue 2 of 2 (process ",
        ];
        let found: Vec<usize> = places.iter().filter_map(|place| said.find(place)).collect();
        assert!(matches!(found[..], [one, two] if one < two), "{said}");
        let said = status(&["unit", "status"]);
        assert!(said.contains("lan0, queue 2 of 2 (process "), "{said}");
        // The kernel would attach another driver to some of its queues; the first keeps them, and its carrier.
        let another_is_refused = || {
            let mut another = world.start_host(1, &TWO);
            assert_eq!(another.wait().code(), Some(1));
            another.wait_for_output("a driver is running already");
        };
        another_is_refused();
        assert!(world.has_carrier(1));
        ping(world.host(1), LAN, 50);
        // It does not open the interface: a process that opens a queue gets frames of the first driver until it closes it, and some kernels
        // set the carrier on. The first driver is stopped, so that any change seen is the second one's.
        unit.kill();
        wait_until("the host sees it", || !world.has_carrier(1));
        host.signal(Signal::STOP);
        let watch = world.host(1).run(|| LinkWatch::open().unwrap());
        // real time: the kernel may report a link change up to a second late.
        std::thread::sleep(Duration::from_millis(1500));
        watch.take_changed().unwrap();
        another_is_refused();
        assert!(!watch.take_changed().unwrap(), "it touched the interface");
        let said = world.host(1).ip("-o link show net1");
        assert!(!said.contains("LOWER_UP"), "{said}");
    });
}

#[test]
fn invalid_queue_options_are_refused() {
    privileged("queues::invalid_queue_options_are_refused", || {
        let world = World::new(CarrierKind::Ethernet, 1);
        let beyond = "the last one is 65535";
        let each: [(&[&str], &str); 6] = [
            (
                &[
                    "host",
                    "--tap",
                    "t0",
                    "--connect",
                    "ethernet://fab/02:00:00:00:00:01",
                ],
                "several queues need iwarp or udp",
            ),
            (
                &["unit", "--lan", "lan0", "--listen", "ethernet://fab1"],
                "several queues need iwarp or udp",
            ),
            (
                &["host", "--tap", "t0", "--connect", "10.77.1.1:65535"],
                beyond,
            ),
            (
                &[
                    "unit",
                    "--lan-tap",
                    "t0",
                    "--listen",
                    "udp://10.77.1.1:65535",
                ],
                beyond,
            ),
            (
                &["unit", "--lan-tap", "t0", "--listen", "10.77.1.1:0"],
                "several queues need a port",
            ),
            (
                &["host", "--tap", "single", "--connect", "10.77.1.1"],
                "multi_queue",
            ),
        ];
        world.unit.ip("tuntap add dev single mode tap");
        for (words, why) in each {
            let ran = world
                .unit
                .run(|| world.verbena().args(words).args(TWO).output().unwrap());
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.code(), Some(1), "{words:?}: {said}");
            assert!(said.contains(why), "{words:?}: {said}");
        }
        for queues in ["0", "17"] {
            let words = [
                "host",
                "--tap",
                "t0",
                "--connect",
                "10.77.1.1",
                "--queues",
                queues,
            ];
            assert_eq!(world.run_command(words).status.code(), Some(2), "{queues}");
        }
    });
}

/// Ctrl-C at a host, and then at the unit: all queues disconnect in order.
#[test]
fn interrupt_disconnects_all_queues() {
    privileged("queues::interrupt_disconnects_all_queues", || {
        let world = World::new(CarrierKind::Iwarp, 2);
        let mut unit = world.start_unit(&TWO);
        let mut host = world.bring_up_with(1, &TWO);
        let _other = world.bring_up_with(2, &TWO);
        ping(world.host(1), LAN, 50);
        let leaves = |driver: &mut Running, how: &str| {
            driver.signal(Signal::INT);
            let code = driver.wait().code();
            let said = driver.output();
            assert_eq!(code, Some(0), "{said}");
            let times = said.matches(how).count();
            assert_eq!(times, 2, "{said}");
            assert!(said.contains("queue 2 of 2: "), "{said}");
        };
        leaves(&mut host, "disconnected in good order");
        assert!(!world.has_tap(1));
        assert!(world.try_status("host", "net1").is_none());
        let hosts = |unit: &Value| unit["hosts"].as_array().map(Vec::len);
        wait_until("both queues forget it", || {
            let units = world.statuses("unit", "lan0");
            units.iter().all(|unit| hosts(unit) == Some(1))
        });
        let said = unit.output();
        assert_eq!(
            said.matches("disconnected: the host shut down").count(),
            2,
            "{said}"
        );
        leaves(&mut unit, "the unit stops in good order");
        wait_until("the other host sees it", || !world.has_carrier(2));
    });
}

/// The interface is removed: the driver ends on all queues, with the reason.
#[test]
fn removed_interface_ends_all_queues() {
    privileged("queues::removed_interface_ends_all_queues", || {
        let world = World::new(CarrierKind::Udp, 1);
        let _unit = world.start_unit(&TWO);
        let mut host = world.bring_up_with(1, &TWO);
        world.host(1).ip("link del net1");
        let code = host.wait().code();
        let said = host.output();
        assert_eq!(code, Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("verbena: queue "), "{said}");
        assert!(last.contains("no network interface `net1`"), "{said}");
    });
}

/// Two units have the same address, and the port of a queue decides which one it reaches, as with a name that resolves to both. One is
/// that of `World`; the other is at host 2, to which host 1 has a link.
fn two_units(way: CarrierKind, protocol: &str) {
    let mut world = World::new(way, 2);
    world.timeout = SHORT;
    let (host, far) = (world.host(1), world.host(2));
    host.connect_veth("far", far, "far");
    far.ip("addr add 10.77.1.1/24 dev far");
    host.ip("route add 10.77.1.1 dev far table 100");
    let lead = |pref: u32, which: &str, table: &str| {
        let line = format!("rule add pref {pref} ipproto {protocol} {which} lookup {table}");
        host.ip(&line);
    };
    let _near = world.start_unit(&TWO);
    let scheme = world.unit_for(1);
    let mut there = world.verbena();
    there.args(["unit", "--lan-tap", "far0", "--listen", &scheme]);
    there.args(["--patience", world.timeout]).args(TWO);
    let there = Running::start(far, &mut there, &world.folder.file("far.log"));
    there.wait_for_output("hosts connect to");
    far.ip("link set far0 up");

    lead(10, "dport 7472", "100");
    // One channel per queue, so that it has one port over iwarp, too.
    let driver = world.start_host(1, &[&TWO[..], &["--arrangement", "c"]].concat());
    let astray = [
        "queue 2 of 2 reached another unit than queue 1 of 2",
        "queue 1 of 2 reached another unit than queue 2 of 2",
    ];
    wait_until("one of them reached another unit", || {
        let said = driver.output();
        astray.iter().any(|what| said.contains(what))
    });
    world.set_addresses(1);
    assert!(!world.has_carrier(1));
    let queues = world.statuses("host", "net1");
    let up = queues.iter().filter(|queue| queue["phase"] == "up");
    assert!(up.count() < 2, "{queues:?}");
    host.ip("rule del pref 10");
    world.wait_until_up(1);
    ping(host, LAN, 50);
    assert_eq!(guests(&world, "lan0"), [1, 1]);

    // From now on new connections reach only the other one, but the first queue's connection stays.
    let from = world.status("unit", "lan0")["hosts"][0]["from"].to_string();
    let port = from.split(':').nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    lead(5, &format!("sport {port}"), "main");
    lead(10, "dport 7471-7472", "100");
    wait_until("all are there", || guests(&world, "far0") == [1, 1]);
    world.wait_until_up(1);
    driver.wait_for_output("another queue reaches only another unit: all of them dial again");
    wait_until("none is here", || guests(&world, "lan0") == [0, 0]);
}

/// The number of hosts of each queue of a unit.
fn guests(world: &World, lan: &str) -> Vec<usize> {
    let queues = world.statuses("unit", lan);
    let hosts = queues.iter().map(|queue| queue["hosts"].as_array());
    hosts.map(|hosts| hosts.unwrap().len()).collect()
}

#[test]
fn all_queues_reach_one_unit_by_udp() {
    privileged("queues::all_queues_reach_one_unit_by_udp", || {
        two_units(CarrierKind::Udp, "udp");
    });
}

#[test]
fn all_queues_reach_one_unit_by_iwarp() {
    privileged("queues::all_queues_reach_one_unit_by_iwarp", || {
        two_units(CarrierKind::Iwarp, "tcp");
    });
}
