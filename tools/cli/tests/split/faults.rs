//! Links that fail, peers that are no hosts, and disconnecting in good order.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use verbena::{Depths, Device};

use crate::program::{Running, is_reachable, ping, sh};
use crate::space::wait_until;
use crate::world::{CarrierKind, LAN, SHORT, World, exclusive, in_parallel, privileged};

/// The LAN's link: down at its far end, and the interface down at ours.
#[test]
fn lan_link_down_clears_host_carrier() {
    privileged("faults::lan_link_down_clears_host_carrier", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let mut unit = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        ping(world.host(1), LAN, 50);
        for (space, end) in [(&world.lan, "eth0"), (&world.unit, "lan0")] {
            space.ip(&format!("link set {end} down"));
            wait_until("the host's interface has no link", || !world.has_carrier(1));
            let status = world.status("host", "net1");
            assert_eq!(
                (&status["phase"], &status["link"]),
                (&"up".into(), &false.into())
            );
            assert_eq!(world.status("unit", "lan0")["link"], false);
            space.ip(&format!("link set {end} up"));
            world.wait_until_up(1);
            // An interface that is set down loses its IPv6 addresses, but not its IPv4 addresses.
            wait_until("frames pass again", || is_reachable(world.host(1), LAN));
            ping(world.host(1), LAN, 50);
        }
        assert!(!unit.has_exited());
        // The connection was not affected.
        assert_eq!(world.status("host", "net1")["connections"], 1);
    });
}

/// The fabric's link: the host loses its unit, and connects again by itself.
#[test]
fn host_reconnects_after_fabric_link_failure() {
    privileged("faults::host_reconnects_after_fabric_link_failure", || {
        let mut world = World::new(CarrierKind::Iwarp, 1);
        world.timeout = SHORT;
        let _unit = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        world.unit.ip("link set fab1 down");
        wait_until("the host's interface has no link", || !world.has_carrier(1));
        wait_until("the unit forgets the host", || world.guests().is_empty());
        world.unit.ip("link set fab1 up");
        world.wait_until_up(1);
        ping(world.host(1), LAN, 50);
    });
}

/// A peer that is not a host is rejected; hosts are not affected.
#[test]
fn non_host_peers_are_rejected() {
    privileged("faults::non_host_peers_are_rejected", || {
        let world = World::new(CarrierKind::Iwarp, 2);
        let mut unit = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| ping(world.host(1), LAN, 3000));
            world.host(2).run(|| {
                for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 3000], b""] {
                    let mut stream = TcpStream::connect(("10.77.2.1", 7471)).unwrap();
                    // It may be rejected before all is written.
                    let _ = stream.write_all(garbage);
                }
                let device = Device::open().unwrap();
                for hello in [
                    &b"not a host"[..],
                    b"",
                    b"VSPL\x03B\0\0\0\0\0\0\0\0\0\0",
                    &[0; 64],
                ] {
                    let endpoint = device.endpoint(Depths::default()).unwrap();
                    let answer = endpoint.connect("10.77.2.1:7471", hello).wait();
                    let refused = answer.expect_err("a stranger");
                    assert!(refused.rejection().is_some(), "{refused}");
                }
            });
            other.join().unwrap();
        });
        unit.wait_for_output("was rejected: not a host of a split driver");
        unit.wait_for_output("was rejected: version 3 of the split driver");
        assert!(world.status("unit", "lan0")["rejected"].as_u64() >= Some(4));
        assert!(!unit.has_exited());
        assert_eq!(world.guests(), ["host1"]);
        ping(world.host(1), LAN, 50);
    });
}

/// However many requests are rejected, the log stays short.
#[test]
fn log_of_rejected_peers_is_rate_limited() {
    privileged("faults::log_of_rejected_peers_is_rate_limited", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let unit = world.start_unit(&[]);
        let before = std::time::Instant::now();
        world.host(1).run(|| {
            let device = Device::open().unwrap();
            for _ in 0..100 {
                let endpoint = device.endpoint(Depths::default()).unwrap();
                let answer = endpoint.connect("10.77.1.1:7471", b"stranger").wait();
                assert!(answer.is_err());
            }
        });
        assert_eq!(world.status("unit", "lan0")["rejected"], 100);
        let spans = before.elapsed().as_secs() / 10 + 1;
        let sentences = unit.output().matches("was rejected").count() as u64;
        assert!((1..=10 * spans).contains(&sentences), "{sentences}");
    });
}

/// A host whose address changes: its old socket is of no use, and it opens a new one.
#[test]
fn host_with_new_address_reconnects() {
    privileged("faults::host_with_new_address_reconnects", || {
        let each = [CarrierKind::Udp, CarrierKind::Ethernet, CarrierKind::Iwarp];
        in_parallel(each, host_address_changes);
    });
}

fn host_address_changes(way: CarrierKind) {
    let mut world = World::new(way, 1);
    world.timeout = SHORT;
    let _unit = world.start_unit(&[]);
    let mut host = world.bring_up(1, "b");
    let space = world.host(1);
    match way {
        CarrierKind::Udp | CarrierKind::Iwarp => {
            space.ip("addr del 10.77.1.2/24 dev fab");
            space.ip("addr add 10.77.1.77/24 dev fab");
        }
        CarrierKind::Ethernet => {
            space.ip("link set fab address 02:00:00:00:77:77");
        }
    }
    wait_until("the host has noticed", || {
        assert!(!host.has_exited(), "{way:?}: {}", host.output());
        let status = world.status("host", "net1");
        status["connections"].as_u64() >= Some(2) && status["phase"] == "up"
    });
    world.wait_until_up(1);
    ping(space, LAN, 50);
}

/// The interface by which a host reaches its unit is removed and added again: the host's TAP stays, and is connected again.
#[test]
fn host_reconnects_when_interface_returns() {
    privileged("faults::host_reconnects_when_interface_returns", || {
        let mut world = World::new(CarrierKind::Ethernet, 1);
        world.timeout = SHORT;
        let _unit = world.start_unit(&[]);
        let at = world.unit_for(1).replace("//fab/", "//way/");
        let host = world.host(1);
        let put_in = || {
            host.ip("link add link fab name way type macvlan mode bridge");
            host.ip("link set way up");
        };
        put_in();
        world.make_persistent(1);
        let mut driver = world.start_host_at(1, &at, &[]);
        world.wait_until_up(1);
        ping(host, LAN, 50);
        host.ip("link del way");
        driver.wait_for_output("there is no network interface `way`");
        put_in();
        wait_until("it is connected again", || {
            assert!(!driver.has_exited(), "{}", driver.output());
            world.status("host", "net1")["connections"] == 2
        });
        world.wait_until_up(1);
        ping(host, LAN, 50);
    });
}

/// A host's interface that is a port of a bridge is promiscuous, though its flags do not show it.
#[test]
fn bridged_host_interface_becomes_promiscuous() {
    privileged("faults::bridged_host_interface_becomes_promiscuous", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let _unit = world.start_unit(&["--allow-promiscuous"]);
        let _host = world.bring_up(1, "b");
        let hears = || world.status("unit", "lan0")["hosts"][0]["promiscuous"] == true;
        assert!(!hears());
        let space = world.host(1);
        space.ip("link add br0 type bridge");
        // With a second port: a bridge does not make its only port promiscuous.
        space.ip("link add other0 type veth peer name other1");
        for line in [
            "net1 master br0",
            "other0 master br0",
            "br0 up",
            "other0 up",
        ] {
            space.ip(&format!("link set {line}"));
        }
        wait_until("the unit knows", hears);
        space.ip("link set net1 nomaster");
        wait_until("the unit knows", || !hears());
    });
}

/// Unless the unit allows it, a host does not become promiscuous, and gets the reason.
#[test]
fn promiscuous_mode_is_opt_in() {
    privileged("faults::promiscuous_mode_is_opt_in", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let _unit = world.start_unit(&[]);
        let host = world.bring_up(1, "b");
        world.host(1).ip("link set net1 promisc on");
        wait_until("the host says it", || {
            let said = host.output();
            said.contains("not-allowed to promiscuous") && said.contains("--allow-promiscuous")
        });
        assert_eq!(
            world.status("unit", "lan0")["hosts"][0]["promiscuous"],
            false
        );
        ping(world.host(1), LAN, 20);
    });
}

/// A second host with the address of the first is rejected, and the first is not affected; when it is gone, the second gets the address.
#[test]
fn second_host_with_same_mac_is_refused() {
    privileged("faults::second_host_with_same_mac_is_refused", || {
        let world = World::new(CarrierKind::Udp, 2);
        let mut unit = world.start_unit(&[]);
        let mac = "02:00:00:00:77:01";
        let mut first = world.bring_up_with(1, &["--mac", mac]);
        let mut second = world.start_host(2, &["--mac", mac]);
        wait_until("its interface is there", || world.has_tap(2));
        world.set_addresses(2);
        wait_until("the second is told", || {
            second.output().contains("another host has it")
        });
        wait_until("the unit says it", || {
            unit.output().contains("was refused an address")
        });
        assert!(!world.has_carrier(2));
        ping(world.host(1), LAN, 20);
        assert_eq!(world.status("host", "net1")["connections"], 1);
        first.signal(Signal::INT);
        first.wait();
        world.wait_until_up(2);
        assert!(!unit.has_exited() && !second.has_exited());
    });
}

/// Garbage where cells are expected.
#[test]
fn malformed_datagrams_are_ignored() {
    privileged("faults::malformed_datagrams_are_ignored", || {
        let world = World::new(CarrierKind::Udp, 2);
        let mut unit = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        world.host(2).run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for n in 0..2000_usize {
                let datagram: Vec<u8> = (0..n % 1400).map(|i| (i * n) as u8).collect();
                socket.send_to(&datagram, "10.77.2.1:7471").unwrap();
            }
        });
        ping(world.host(1), LAN, 500);
        assert!(!unit.has_exited());
        assert_eq!(world.guests(), ["host1"]);
    });
}

/// Ctrl-C at a host: it disconnects in order, and its interface is removed.
#[test]
fn interrupted_host_disconnects_in_order() {
    privileged("faults::interrupted_host_disconnects_in_order", || {
        let each = [
            (CarrierKind::Iwarp, "a"),
            (CarrierKind::Iwarp, "b"),
            (CarrierKind::Udp, "c"),
        ];
        in_parallel(each, |(way, arrangement)| {
            let world = World::new(way, 1);
            let mut unit = world.start_unit(&[]);
            let mut host = world.bring_up(1, arrangement);
            ping(world.host(1), LAN, 50);
            host.signal(Signal::INT);
            let status = host.wait();
            assert_eq!(status.code(), Some(0), "{}", host.output());
            assert!(!world.has_tap(1));
            // The unit has every element that it lent, and returned all of the host's (P6).
            assert!(
                host.output().contains("disconnected in good order"),
                "{}",
                host.output()
            );
            wait_until("the unit forgets it", || world.guests().is_empty());
            assert!(!unit.has_exited());
            assert!(world.try_status("host", "net1").is_none());
        });
    });
}

/// Ctrl-C at the unit: hosts are told, keep their interfaces, and connect to the next unit.
#[test]
fn interrupted_unit_disconnects_its_hosts() {
    privileged("faults::interrupted_unit_disconnects_its_hosts", || {
        in_parallel([CarrierKind::Iwarp, CarrierKind::Udp], |way| {
            let world = World::new(way, 2);
            let mut unit = world.start_unit(&[]);
            let mut hosts = [world.bring_up(1, "b"), world.bring_up(2, "c")];
            ping(world.host(1), LAN, 50);
            unit.signal(Signal::INT);
            let status = unit.wait();
            assert_eq!(status.code(), Some(0), "{}", unit.output());
            assert!(
                unit.output().contains("the unit stops in good order"),
                "{}",
                unit.output()
            );
            for n in [1, 2] {
                wait_until("the host's interface has no link", || !world.has_carrier(n));
                assert_ne!(world.status("host", &format!("net{n}"))["phase"], "up");
            }
            let _unit = world.start_unit(&[]);
            for n in [1, 2] {
                world.wait_until_up(n);
                ping(world.host(n), LAN, 50);
            }
            assert!(hosts.iter_mut().all(|host| !host.has_exited()));
        });
    });
}

/// A TAP as the unit's LAN port, which the unit's machine uses as it likes. And a host with two units (P9).
#[test]
fn host_connects_to_two_units_independently() {
    let name = "faults::host_connects_to_two_units_independently";
    privileged(name, || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let mut first = world.start_unit(&[]);
        let _host = world.bring_up(1, "b");
        let start = |space, words: &[&str], log| {
            let mut command = world.verbena();
            Running::start(space, command.args(words), &world.folder.file(log))
        };
        let listen = ["unit", "--lan-tap", "own0", "--listen", "0.0.0.0:48002"];
        let mut second = start(&world.unit, &listen, "own.log");
        second.wait_for_output("hosts connect to");
        world.unit.ip("addr add 192.168.8.1/24 dev own0");
        world.unit.ip("link set own0 up");
        let dial = ["host", "--connect", "10.77.1.1:48002", "--tap", "own1"];
        let mut host = start(world.host(1), &dial, "own1.log");
        host.wait_for_output("connects to");
        world.host(1).ip("addr add 192.168.8.2/24 dev own1");
        world.host(1).ip("link set own1 up");
        wait_until("it is up", || world.status("host", "own1")["link"] == true);
        ping(world.host(1), "192.168.8.1", 200);
        ping(world.host(1), LAN, 200);
        let said = world.run_command(["host", "status", "--json"]);
        assert_eq!(String::from_utf8_lossy(&said.stdout).lines().count(), 2);
        // The end of one unit does not affect the other.
        second.signal(Signal::TERM);
        assert_eq!(second.wait().code(), Some(0), "{}", second.output());
        assert!(!world.unit.ip("-o link").contains("own0"));
        wait_until("the host sees it", || {
            world.status("host", "own1")["link"] == false
        });
        ping(world.host(1), LAN, 200);
        assert!(!first.has_exited() && !host.has_exited());
    });
}

/// A TAP delivers super-frames; for hosts with small elements they are segmented, not dropped.
#[test]
fn super_frames_are_segmented_for_small_buffers() {
    let name = "faults::super_frames_are_segmented_for_small_buffers";
    privileged(name, || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let start = |space, line: &str, log| {
            let mut command = world.verbena();
            let words = command.args(line.split(' '));
            Running::start(space, words, &world.folder.file(log))
        };
        let line = "unit --lan-tap own0 --no-offloads --listen 0.0.0.0";
        let unit = start(&world.unit, line, "own.log");
        unit.wait_for_output("hosts connect to");
        world.unit.ip("addr add 192.168.8.1/24 dev own0");
        world.unit.ip("link set own0 up");
        let host = start(
            world.host(1),
            "host --connect 10.77.1.1 --tap own1",
            "own1.log",
        );
        host.wait_for_output("connects to");
        world.host(1).ip("addr add 192.168.8.2/24 dev own1");
        world.host(1).ip("link set own1 up");
        wait_until("it is up", || world.status("host", "own1")["link"] == true);
        ping(&world.unit, "192.168.8.2", 10);
        let _server = world.serve_iperf3_at(world.host(1));
        let line =
            "for i in 1 2 3 4 5; do iperf3 -c 192.168.8.2 -n 20M && exit 0; sleep 1; done; exit 1";
        // A stream that stalls takes minutes, and is killed.
        sh(&world.unit, line);
    });
}

/// A LAN with frames longer than the elements: hosts get an MTU that fits.
#[test]
fn host_mtu_fits_element_size() {
    let name = "faults::host_mtu_fits_element_size";
    privileged(name, || {
        let world = World::new(CarrierKind::Iwarp, 2);
        world.set_lan_mtu(16_000);
        let unit = world.start_unit(&["--no-offloads"]);
        let host = world.bring_up(1, "b");
        let pings = |n: usize| {
            let mtu = world.status("host", &format!("net{n}"))["mtu"].as_u64();
            let size = mtu.unwrap() - 28;
            let line = format!("ping -q -c 5 -i 0.2 -W 2 -M do -s {size} {LAN}");
            crate::program::sh(world.host(n), &line);
            assert!((9000..16_000).contains(&size), "{size}");
        };
        pings(1);
        drop((host, unit));
        let _unit = world.start_unit(&[]);
        let _host = world.bring_up_with(2, &["--no-offloads"]);
        pings(2);
    });
}

/// A driver polls before it sleeps, and does sleep: also if a frame wakes it now and then.
#[test]
fn nearly_idle_drivers_sleep() {
    exclusive("faults::nearly_idle_drivers_sleep", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let unit = world.start_unit_on(["--lan-tap", "tap0"], &[]);
        world.unit.ip(&format!("addr add {LAN}/24 dev tap0"));
        world.unit.ip("link set tap0 up");
        let host = world.bring_up(1, "b");
        let ping = |words: &str| sh(world.host(1), &format!("ping -q {words} {LAN}"));
        // A stream first, so that polling has success.
        ping("-c 2000 -i 0");
        let before = cpu_time(&unit) + cpu_time(&host);
        ping("-c 20 -i 0.1");
        let worked = cpu_time(&unit) + cpu_time(&host) - before;
        // Of four hundred: two processes for two seconds.
        assert!(worked < 100, "{worked} hundredths of a second");
    });
}

/// Frames of a TAP for the only host wait in its queue while the host has no room: the unit sleeps meanwhile, and queues none.
#[test]
fn unit_sleeps_while_host_is_stopped() {
    exclusive("faults::unit_sleeps_while_host_is_stopped", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let unit = world.start_unit_on(["--lan-tap", "tap0"], &[]);
        world.unit.ip(&format!("addr add {LAN}/24 dev tap0"));
        world.unit.ip("link set tap0 up");
        let host = world.bring_up(1, "b");
        let _server = world.serve_iperf3_at(&world.unit);
        // The server may not have started yet.
        let line = format!(
            "for i in 1 2 3 4 5; do said=$(timeout 30 iperf3 -c {LAN} -t 4 -R -J) && echo \"$said\" && exit 0; sleep 0.2; done; exit 1"
        );
        std::thread::scope(|scope| {
            let stream = scope.spawn(|| sh(world.host(1), &line));
            let frames = || world.status("host", "net1")["frames_in"].as_u64();
            let begun = frames();
            wait_until("the stream runs", || {
                frames() > begun.map(|count| count + 1_000)
            });
            host.signal(Signal::STOP);
            // real time: until the queues between the two are full.
            std::thread::sleep(Duration::from_millis(500));
            let before = cpu_time(&unit);
            // real time: the span in which processor time is measured.
            std::thread::sleep(Duration::from_secs(1));
            let worked = cpu_time(&unit) - before;
            host.signal(Signal::CONT);
            // Of a hundred.
            assert!(worked < 30, "{worked} hundredths of a second in one");
            let report: serde_json::Value = stream.join().unwrap().parse().unwrap();
            let bytes = report["end"]["sum_received"]["bytes"].as_u64();
            assert!(bytes > Some(1 << 20), "{report}");
        });
        let hosts = &world.status("unit", "tap0")["hosts"];
        assert_eq!(hosts[0]["counts"]["full"], 0, "{hosts}");
        assert_eq!(world.status("host", "net1")["connections"], 1);
        ping(world.host(1), LAN, 50);
    });
}

/// Processor time of a program, in hundredths of a second.
fn cpu_time(program: &Running) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
    let (_, behind) = stat.rsplit_once(')').unwrap();
    let ticks = behind.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}
