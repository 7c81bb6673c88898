//! Real programs over every carrier in every arrangement: two hosts, a LAN, short and long frames. These tests run alone and take longest,
//! so the combinations that tests of `killed` run as well are in the long set (`cargo xtask test --long`).

use serde_json::Value;

use crate::program::{iperf3, ping, ping_with, sh};
use crate::space::Netns;
use crate::world::{
    CarrierKind, LAN, LAN6, World, address, address6, exclusive, runs_long_set, unprivileged,
};

macro_rules! combinations {
    ($($name:ident: $way:ident $arrangement:literal $runs:expr;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("traffic::", stringify!($name));
            let runs = $runs;
            if runs {
                exclusive(name, || everything(CarrierKind::$way, $arrangement));
            }
        }
    )*};
}

combinations! {
    iwarp_a: Iwarp "a" true;
    iwarp_b: Iwarp "b" runs_long_set();
    iwarp_c: Iwarp "c" true;
    udp_a: Udp "a" runs_long_set();
    udp_b: Udp "b" true;
    udp_c: Udp "c" runs_long_set();
    ethernet_a: Ethernet "a" runs_long_set();
    ethernet_b: Ethernet "b" true;
    ethernet_c: Ethernet "c" runs_long_set();
}

fn everything(way: CarrierKind, arrangement: &str) {
    let world = World::new(way, 2);
    let _unit = world.start_unit(&[]);
    let _one = world.bring_up(1, arrangement);
    let _two = world.bring_up(2, arrangement);
    let (_web, _iperf3) = (world.serve_web(), world.serve_iperf3());
    ping(world.host(1), LAN, 1000);
    ping(world.host(1), LAN6, 100);
    tcp(&world, 1, LAN);
    udp(&world, 1);
    world.download(1);
    // Both at once; then each other, which the LAN does not see.
    std::thread::scope(|scope| {
        scope.spawn(|| ping(world.host(2), LAN, 500));
        ping(world.host(1), LAN, 500);
    });
    ping(world.host(1), &address(2), 500);
    ping(world.host(2), &address6(1), 100);
    let _there = world.serve_iperf3_at(world.host(2));
    tcp(&world, 1, &address(2));
    // Longer frames, as soon as the LAN has them.
    world.set_lan_mtu(9000);
    for n in [1, 2] {
        world.host(n).ip(&format!("link set net{n} mtu 9000"));
    }
    long_frames(&world, 1, LAN);
    long_frames(&world, 1, &address(2));
    check_statuses(&world, arrangement);
}

/// TCP in both directions at once: both transfer data.
pub(crate) fn tcp(world: &World, n: usize, to: &str) {
    let report = iperf3(world.host(n), &format!("-c {to}"));
    for way in ["sum_received", "sum_received_bidir_reverse"] {
        let bytes = report["end"][way]["bytes"].as_u64().unwrap_or(0);
        // More than a stream that stalls after its first window, however busy the machine is.
        assert!(bytes > 200_000, "{way}: {bytes} bytes: {}", report["end"]);
    }
}

/// 10 Mbit/s of datagrams in both directions at once: nearly all arrive. Those that the receiving iperf3 had no room for are not counted as
/// the carrier's loss: on a busy machine they can be most of them.
fn udp(world: &World, n: usize) {
    let (host, lan) = (world.host(n), &world.lan);
    let overflowed = || [dropped_datagrams(lan), dropped_datagrams(host)];
    let before = overflowed();
    let report = iperf3(host, &format!("-c {LAN} -u -b 10M"));
    let after = overflowed();
    for (i, way) in ["sum", "sum_bidir_reverse"].into_iter().enumerate() {
        let sum = &report["end"][way];
        let count = |key: &str| sum[key].as_u64().unwrap_or(0);
        let overflowed = after[i] - before[i];
        let lost = count("lost_packets").saturating_sub(overflowed);
        let packets = count("packets");
        assert!(
            packets > 500 && lost * 20 < packets,
            "{way}, {overflowed} without room: {sum}"
        );
    }
}

/// The number of datagrams dropped by full sockets of a namespace.
fn dropped_datagrams(space: &Netns) -> u64 {
    let counts = sh(space, "grep ^Udp: /proc/net/snmp");
    let (names, values) = counts.split_once('\n').unwrap();
    let column = names.split(' ').position(|name| name == "RcvbufErrors");
    values
        .split(' ')
        .nth(column.unwrap())
        .unwrap()
        .parse()
        .unwrap()
}

/// Frames of 9000 bytes that may not be fragmented.
fn long_frames(world: &World, n: usize, to: &str) {
    ping_with(world.host(n), &format!("-i 0 -M do -s 8972 {to}"), 50);
}

/// Checks the status of both sides, and that there were no violations.
fn check_statuses(world: &World, arrangement: &str) {
    let arrangement = arrangement.to_uppercase();
    let unit = world.status("unit", "lan0");
    let guests = unit["hosts"].as_array().unwrap();
    assert_eq!(world.guests(), ["host1", "host2"]);
    let right = |status: &Value, messages: &Value| {
        assert_eq!(status["arrangement"], arrangement.as_str(), "{status}");
        assert_eq!(status["phase"], "up", "{status}");
        let count = |key: &str| messages[key].as_u64().unwrap_or(u64::MAX);
        assert_eq!(count("violations"), 0, "{status}");
        assert!(count("packets_in") > 1000, "{status}");
    };
    for guest in guests {
        right(guest, &guest["messages"]);
        assert_eq!(guest["counts"]["refused"], 0, "{guest}");
        let carrier = format!("{:?}", world.carrier).to_lowercase();
        assert_eq!(guest["carrier"], carrier.as_str(), "{guest}");
    }
    for n in [1, 2] {
        let host = world.status("host", &format!("net{n}"));
        right(&host, &host["messages"]);
        assert_eq!(host["connections"], 1, "{host}");
    }
}

/// A host has the LAN's MTU from the beginning, and one without offloads works.
#[test]
fn host_starts_with_lan_mtu_9000() {
    exclusive("traffic::host_starts_with_lan_mtu_9000", || {
        let world = World::new(CarrierKind::Iwarp, 2);
        world.set_lan_mtu(9000);
        let _unit = world.start_unit(&[]);
        let _one = world.bring_up(1, "b");
        let _two = world.bring_up_with(2, &["--no-offloads", "--mac", "unit"]);
        let (_web, _iperf3) = (world.serve_web(), world.serve_iperf3());
        for n in [1, 2] {
            assert_eq!(world.status("host", &format!("net{n}"))["mtu"], 9000);
            long_frames(&world, n, LAN);
            tcp(&world, n, LAN);
            world.download(n);
        }
    });
}

/// Root is not needed: everything in a user namespace.
#[test]
fn drivers_run_in_user_namespace() {
    unprivileged("traffic::drivers_run_in_user_namespace", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let _unit = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        ping(world.host(1), LAN, 200);
    });
}
