//! Drivers that are killed under load and started again: the other side connects again by itself.

use std::time::Duration;

use rustix::process::Signal;

use crate::blob;
use crate::program::{Running, answered_pings, missing_answers, ping};
use crate::space::wait_until;
use crate::world::{CarrierKind, LAN, SHORT, World, in_parallel, privileged};

macro_rules! ways {
    ($($name:ident: $what:ident $way:ident $arrangement:literal;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("killed::", stringify!($name));
            privileged(name, || $what(CarrierKind::$way, $arrangement));
        }
    )*};
}

ways! {
    iwarp: kill_each_side Iwarp "b";
    udp: kill_each_side Udp "c";
    ethernet: kill_each_side Ethernet "a";
    other_iwarp_host_survives_kill: kill_one_host Iwarp "b";
    other_udp_host_survives_kill: kill_one_host Udp "a";
    other_ethernet_host_survives_kill: kill_one_host Ethernet "c";
}

/// Kills the host's driver, then the unit's; a download that began before continues after.
fn kill_each_side(way: CarrierKind, arrangement: &str) {
    let mut world = World::new(way, 1);
    world.timeout = SHORT;
    world.make_persistent(1);
    kill_each_side_in(&world, &[], &["--arrangement", arrangement]);
}

/// The same in a world with an interface, with these options for the unit and the host.
pub(crate) fn kill_each_side_in(world: &World, of_unit: &[&str], with: &[&str]) {
    let mut unit = world.start_unit(of_unit);
    let mut host = world.start_host(1, with);
    world.wait_until_up(1);
    let _web = world.serve_web();
    let mut download = start_download(world);
    host.kill();
    wait_until("no process holds the interface", || !world.has_carrier(1));
    host = world.start_host(1, with);
    world.wait_until_up(1);
    // Before the pings: where cells are not acknowledged, those of a stream can displace others.
    expect_download(&mut download);
    ping(world.host(1), LAN, 100);
    assert!(!unit.has_exited());
    assert_eq!(world.guests(), ["host1"]);

    let mut download = start_download(world);
    unit.kill();
    wait_until("the host sees it", || !world.has_carrier(1));
    unit = world.start_unit(of_unit);
    world.wait_until_up(1);
    expect_download(&mut download);
    ping(world.host(1), LAN, 100);
    assert!(!host.has_exited() && !unit.has_exited());
    assert_eq!(world.status("host", "net1")["connections"], 2);
}

/// A download that has begun.
fn start_download(world: &World) -> Running {
    let came = || -> u64 {
        let queues = world.statuses("host", "net1");
        let each = queues.iter().map(|queue| &queue["messages"]["packets_in"]);
        each.map(|packets| packets.as_u64().unwrap()).sum()
    };
    let before = came();
    let download = world.begin_download(1, "80M");
    wait_until("the download is on its way", || came() > before + 500);
    download
}

fn expect_download(download: &mut Running) {
    assert!(download.wait().success(), "{}", download.output());
    assert!(download.output().starts_with(blob::checksum()));
}

/// When a host is killed or stopped, the unit frees its resources, and another host is not affected.
fn kill_one_host(way: CarrierKind, arrangement: &str) {
    let mut world = World::new(way, 2);
    world.timeout = SHORT;
    let unit = world.start_unit(&[]);
    let mut one = world.bring_up(1, arrangement);
    let _two = world.bring_up(2, arrangement);
    assert_eq!(world.guests(), ["host1", "host2"]);
    let line = format!("exec ping -n -i 0.005 {LAN}");
    let mut other = Running::sh(world.host(2), &line, &world.folder.file("ping.log"));
    let answered = || answered_pings(&other.output());
    wait_until("pings are answered", || !answered().is_empty());
    // Stopped: the unit detects it only by its timeout.
    one.signal(Signal::STOP);
    wait_until("the frozen host is gone", || world.guests() == ["host2"]);
    assert!(unit.output().contains("silent for"), "{}", unit.output());
    one.signal(Signal::CONT);
    wait_until("it comes back", || world.guests().len() == 2);
    world.wait_until_up(1);
    one.kill();
    wait_until("the dead host is gone", || world.guests() == ["host2"]);
    let before = answered().len();
    wait_until("more pings are answered", || answered().len() > before);
    other.signal(Signal::INT);
    other.wait();
    // None but the last ones, whose answers were on their way, may be missing.
    let said = other.output();
    let last = answered_pings(&said).into_iter().max().unwrap();
    let missing = missing_answers(&said, last);
    assert!(missing.is_empty(), "{missing:?} lost: {said}");
    // Its resources are free again: addresses, and its place.
    let _one = world.bring_up(1, "c");
    ping(world.host(1), LAN, 100);
}

/// The address that a unit suggested stays the interface's: other stations know the host by it.
#[test]
fn assigned_mac_survives_unit_restart() {
    privileged("killed::assigned_mac_survives_unit_restart", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let mut unit = world.start_unit(&[]);
        let _host = world.bring_up_with(1, &["--mac", "unit"]);
        let mac = || world.status("host", "net1")["mac"].clone();
        let before = mac();
        unit.kill();
        wait_until("the host sees it", || !world.has_carrier(1));
        let _unit = world.start_unit(&[]);
        world.wait_until_up(1);
        assert_eq!(mac(), before);
        ping(world.host(1), LAN, 20);
    });
}

/// A unit that was stopped for less than a host's timeout is not given up, and neither is the host (P9).
#[test]
fn stop_shorter_than_timeout_keeps_connection() {
    privileged("killed::stop_shorter_than_timeout_keeps_connection", || {
        let each = [
            (CarrierKind::Udp, "b"),
            (CarrierKind::Ethernet, "a"),
            (CarrierKind::Iwarp, "c"),
        ];
        in_parallel(each, |(way, arrangement)| stop_each_side(way, arrangement));
    });
}

/// Stops the unit, then the host.
fn stop_each_side(way: CarrierKind, arrangement: &str) {
    let world = World::new(way, 1);
    let unit = world.start_unit(&[]);
    let host = world.bring_up(1, arrangement);
    let connections = || world.status("host", "net1")["connections"].clone();
    for held in [&unit, &host] {
        held.signal(Signal::STOP);
        // real time: the length of the stop is the subject, and shorter than the timeout of 10 s.
        std::thread::sleep(Duration::from_secs(4));
        held.signal(Signal::CONT);
        ping(world.host(1), LAN, 100);
        assert_eq!(connections(), 1, "{way:?}");
    }
}
