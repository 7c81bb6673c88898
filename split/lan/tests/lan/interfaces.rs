//! Settings and states of kernel interfaces from both sides, and what happens when they are deleted.

use std::process::Command;

use verbena_lan::{
    Batch, Capability, Error, Frame, Interface, LinkWatch, Mac, Offloads, PartialChecksum, Port,
    ReadOutcome, Tap, Vnet, WriteOutcome,
};

use crate::common::{Netns, privileged, wait_until};

fn tap(space: &Netns, name: &str, queues: usize) -> Tap {
    space.run(|| Tap::create(name, queues)).unwrap()
}

fn frame(to: Mac, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
    frame[..6].copy_from_slice(&to.octets());
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

#[test]
fn p8_settings_match_what_the_kernel_reports() {
    privileged(
        "interfaces::p8_settings_match_what_the_kernel_reports",
        || {
            let space = Netns::new();
            let tap = tap(&space, "tap%d", 1);
            let interface = tap.interface();
            assert_eq!(interface.name().unwrap(), "tap0");
            let mac: Mac = "02:00:00:00:00:2a".parse().unwrap();
            interface.set_mac(mac).unwrap();
            interface.set_mtu(9000).unwrap();
            assert_eq!(
                (interface.mac().unwrap(), interface.mtu().unwrap()),
                (mac, 9000)
            );
            let said = space.ip("link show tap0");
            assert!(
                said.contains("mtu 9000") && said.contains("02:00:00:00:00:2a"),
                "{said}"
            );
            assert!(!interface.link().unwrap().up);
            // A renamed interface is followed.
            space.ip("link set tap0 name other");
            assert_eq!(interface.name().unwrap(), "other");
            interface.set_mtu(1400).unwrap();
            assert!(space.ip("link show other").contains("mtu 1400"));
            // Invalid values are errors that name the call.
            for mtu in [0, 70_000, u32::MAX] {
                let why = interface.set_mtu(mtu).unwrap_err();
                assert!(why.to_string().contains("SIOCSIFMTU"), "{why}");
            }
            let group = interface.set_mac(Mac::BROADCAST).unwrap_err();
            assert!(matches!(group, Error::NotUnicast { .. }), "{group}");
            // It cannot be opened again, and is deleted when dropped.
            let again = space.run(|| Tap::create("other", 1)).unwrap_err();
            assert!(matches!(again, Error::InUse { .. }), "{again}");
            drop(tap);
            // Processes that other tests start have its descriptor for a moment.
            let named = || space.run(|| Interface::named("other"));
            wait_until("it is deleted", || named().is_err());
            let gone = named().unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
        },
    );
}

#[test]
fn p8_links_are_seen_on_both_sides() {
    privileged("interfaces::p8_links_are_seen_on_both_sides", || {
        let (unit, lan) = (Netns::new(), Netns::new());
        unit.connect_veth("u0", &lan, "l0");
        let tap = tap(&unit, "tap0", 1);
        let watch = unit.run(LinkWatch::open).unwrap();
        let carrier = |interface: &Interface| interface.link().unwrap().carrier;
        tap.interface().set_up(true).unwrap();
        assert!(watch.take_changed().unwrap() && !watch.take_changed().unwrap());
        assert!(carrier(tap.interface()));
        tap.set_carrier(false).unwrap();
        wait_until("the kernel tells of it", || watch.take_changed().unwrap());
        assert!(!carrier(tap.interface()) && tap.interface().link().unwrap().up);
        assert!(unit.ip("link show tap0").contains("NO-CARRIER"));
        tap.set_carrier(true).unwrap();
        assert!(carrier(tap.interface()));
        assert!(!unit.ip("link show tap0").contains("NO-CARRIER"));

        let port = unit.run(|| Port::open("u0", false)).unwrap();
        assert!(carrier(port.interface()));
        lan.ip("link set l0 down");
        wait_until("the kernel tells of it", || watch.take_changed().unwrap());
        assert!(!carrier(port.interface()));
        wait_until("it does not run", || {
            !port.interface().link().unwrap().running
        });
        lan.ip("link set l0 up");
        assert!(carrier(port.interface()));
        wait_until("it runs", || port.interface().link().unwrap().running);
    });
}

#[test]
fn p8_offload_setting_reports_what_kernel_granted() {
    privileged(
        "interfaces::p8_offload_setting_reports_what_kernel_granted",
        || {
            let space = Netns::new();
            let tap = tap(&space, "tap0", 1);
            let features = || space.command("ethtool -k tap0");
            assert_eq!(tap.set_offloads(Offloads::ALL).unwrap(), Offloads::ALL);
            assert!(features().contains("tcp-segmentation-offload: on"));
            let useless = Offloads {
                checksum: false,
                ..Offloads::ALL
            };
            assert_eq!(tap.set_offloads(useless).unwrap(), Offloads::NONE);
            let said = features();
            assert!(said.contains("tcp-segmentation-offload: off"), "{said}");
            assert!(said.contains("tx-checksumming: off"), "{said}");
        },
    );
}

#[test]
fn p8_interface_down_loses_and_counts_frames() {
    privileged(
        "interfaces::p8_interface_down_loses_and_counts_frames",
        || {
            let (unit, lan) = (Netns::new(), Netns::new());
            unit.connect_veth("u0", &lan, "l0");
            let tap = tap(&unit, "tap0", 1);
            let queue = &tap.queues()[0];
            let port = unit.run(|| Port::open("u0", true)).unwrap();
            let peer = lan.run(|| Port::open("l0", true)).unwrap();
            let bytes = frame(Mac::BROADCAST, 100);
            let frames = [(); 3].map(|()| Frame::new(Vnet::PLAIN, &bytes).unwrap());
            let all = |done, refused| verbena_lan::BatchWriteOutcome { done, refused };
            // The TAP is still down.
            assert_eq!(queue.write(&frames), Ok(all(3, 3)));
            assert_eq!(
                queue.write_frame(&Vnet::PLAIN, &bytes),
                Ok(WriteOutcome::Refused)
            );
            tap.interface().set_up(true).unwrap();
            assert_eq!(queue.write(&frames), Ok(all(3, 0)));
            // The port works again after the interface was down.
            let mut batch = Batch::new(8);
            unit.ip("link set u0 down");
            assert_eq!(port.write(&frames), Ok(all(3, 3)));
            assert_eq!(
                port.write_frame(&Vnet::PLAIN, &bytes),
                Ok(WriteOutcome::Refused)
            );
            assert_eq!(port.read(&mut batch).unwrap().lost, 0);
            unit.ip("link set u0 up");
            wait_until("frames come again", || {
                peer.write(&frames).unwrap();
                port.read(&mut batch).unwrap();
                batch.frames().iter().any(|f| f.bytes() == bytes)
            });
            assert_eq!(port.write(&frames), Ok(all(3, 0)));
            // Of three frames only the one that is too long is lost.
            let long = frame(Mac::BROADCAST, 3000);
            let long = Frame::new(Vnet::PLAIN, &long).unwrap();
            let mixed = [frames[0].clone(), long, frames[1].clone()];
            assert_eq!(port.write(&mixed), Ok(all(3, 1)));
            // Both interfaces are deleted.
            unit.ip("link del u0");
            let gone = port.write(&frames).unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
            let gone = port.interface().link().unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
            unit.ip("link del tap0");
            let gone = queue.read(&mut batch).unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
            let gone = queue.write(&frames).unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
            let gone = tap.set_carrier(true).unwrap_err();
            assert!(matches!(gone, Error::NoInterface { .. }), "{gone}");
        },
    );
}

#[test]
fn vlan_tag_and_partial_checksum_pass_unchanged() {
    privileged(
        "interfaces::vlan_tag_and_partial_checksum_pass_unchanged",
        || {
            let (unit, lan) = (Netns::new(), Netns::new());
            unit.connect_veth("u0", &lan, "l0");
            // Neighbour discovery would send frames in between.
            unit.run(|| std::fs::write("/proc/sys/net/ipv6/conf/u0/disable_ipv6", "1"))
                .unwrap();
            lan.run(|| std::fs::write("/proc/sys/net/ipv6/conf/l0/disable_ipv6", "1"))
                .unwrap();
            let port = unit.run(|| Port::open("u0", true)).unwrap();
            let peer = lan.run(|| Port::open("l0", true)).unwrap();
            let mut tagged = frame(Mac::BROADCAST, 200);
            tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 5, 0x88, 0xb5]);
            let mut twice = frame(Mac::BROADCAST, 200);
            twice[12..22].copy_from_slice(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 0x88, 0xb5]);
            let partial = Vnet {
                partial: Some(PartialChecksum {
                    start: 60,
                    offset: 16,
                }),
                ..Vnet::PLAIN
            };
            let mut batch = Batch::new(8);
            for (vnet, bytes) in [
                (Vnet::PLAIN, frame(Mac::BROADCAST, 60)),
                (Vnet::PLAIN, tagged.clone()),
                (Vnet::PLAIN, twice),
                (partial, frame(Mac::BROADCAST, 200)),
                (partial, tagged),
            ] {
                assert_eq!(peer.write_frame(&vnet, &bytes), Ok(WriteOutcome::Sent));
                wait_until("it came", || {
                    port.read(&mut batch).unwrap();
                    batch
                        .frames()
                        .iter()
                        .any(|f| f.bytes()[6..12] == bytes[6..12])
                });
                let came = batch.frames().last().unwrap();
                assert_eq!(came.bytes(), bytes);
                assert_eq!(came.vnet().partial, vnet.partial);
                // Sent frames do not come back.
                assert_eq!(peer.read(&mut batch).unwrap().frames, 0);
            }
            let counters = port.counters().unwrap();
            assert!(counters.frames >= 5 && counters.drops == 0, "{counters:?}");
        },
    );
}

#[test]
fn every_queue_carries_frames() {
    privileged("interfaces::every_queue_carries_frames", || {
        let space = Netns::new();
        let tap = tap(&space, "tap0", 4);
        let mac = tap.interface().mac().unwrap();
        tap.interface().set_up(true).unwrap();
        let port = space.run(|| Port::open("tap0", false)).unwrap();
        let mut batch = Batch::new(8);
        let mut room = vec![0; verbena_lan::MAX_FRAME_LEN + 1];
        for (at, queue) in tap.queues().iter().enumerate() {
            let mut bytes = frame(mac, 100);
            bytes[99] = at as u8;
            assert_eq!(
                queue.write_frame(&Vnet::PLAIN, &bytes),
                Ok(WriteOutcome::Sent)
            );
            wait_until("it came up", || {
                port.read(&mut batch).unwrap();
                batch.frames().iter().any(|f| f.bytes() == bytes)
            });
        }
        // A buffer that is too short loses a frame, which is reported; the next one arrives.
        let small = frame(Mac::new([2, 0, 0, 0, 0, 3]), 100);
        assert_eq!(
            port.write_frame(&Vnet::PLAIN, &small),
            Ok(WriteOutcome::Sent)
        );
        wait_until("it is lost", || {
            let mut queues = tap.queues().iter();
            queues.any(|queue| queue.read_frame(&mut [0; 50]) == Ok(ReadOutcome::Lost))
        });
        // A frame from the kernel arrives at one of the queues.
        let bytes = frame(Mac::new([2, 0, 0, 0, 0, 3]), 100);
        assert_eq!(
            port.write_frame(&Vnet::PLAIN, &bytes),
            Ok(WriteOutcome::Sent)
        );
        wait_until("it came down", || {
            let mut queues = tap.queues().iter();
            queues.any(|queue| match queue.read_frame(&mut room).unwrap() {
                ReadOutcome::Frame(_, len) => room[..len] == bytes,
                ReadOutcome::WouldBlock => false,
                ReadOutcome::Lost => panic!("a frame that does not fit"),
            })
        });
        let none = space.run(|| Tap::create("tap1", 0)).unwrap_err();
        assert!(matches!(none, Error::QueueCount { got: 0, .. }), "{none}");
    });
}

const UNPRIVILEGED: &str = "VERBENA_LAN_WITHOUT_RIGHTS";

#[test]
fn missing_capability_is_named() {
    if std::env::var_os(UNPRIVILEGED).is_some() {
        return check_unprivileged();
    }
    privileged("interfaces::missing_capability_is_named", || {
        let space = Netns::new();
        space.ip("link add u0 type veth peer name u1");
        space.ip("tuntap add dev mine mode tap user 0");
        let program = std::env::current_exe().unwrap();
        let ran = space.run(|| {
            let mut command = Command::new("setpriv");
            command
                .args(["--bounding-set=-all", "--inh-caps=-all"])
                .arg(program);
            command.args([
                "interfaces::missing_capability_is_named",
                "--exact",
                "--nocapture",
            ]);
            command.env(UNPRIVILEGED, "1").output()
        });
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let complained = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}{complained}");
        assert!(said.contains("1 passed"), "{said}");
        // A persistent interface stays when it is dropped.
        assert!(space.ip("link").contains("mine"));
    });
}

fn check_unprivileged() {
    let lacks = |error: Error, wanted: Capability| {
        let named =
            matches!(&error, Error::MissingCapability { capability, .. } if *capability == wanted);
        let text = error.to_string();
        assert!(named && text.contains(&wanted.to_string()), "{text}");
        assert!(text.contains("unshare -Urn"), "{text}");
    };
    lacks(Tap::create("tap0", 1).unwrap_err(), Capability::NetAdmin);
    lacks(Port::open("u0", false).unwrap_err(), Capability::NetRaw);
    let interface = Interface::named("u0").unwrap();
    lacks(interface.set_mtu(1400).unwrap_err(), Capability::NetAdmin);
    lacks(interface.set_up(true).unwrap_err(), Capability::NetAdmin);
    // Reading settings needs no capability.
    assert_eq!(interface.mtu(), Ok(1500));
    // An interface that an administrator made for this user needs none either, except to set it up.
    let mine = Tap::create("mine", 1).unwrap();
    assert_eq!(mine.set_offloads(Offloads::ALL), Ok(Offloads::ALL));
    mine.set_carrier(true).unwrap();
    lacks(
        mine.interface().set_up(true).unwrap_err(),
        Capability::NetAdmin,
    );
    // An interface of another kind has the name.
    let other = Tap::create("u0", 1).unwrap_err();
    assert!(
        other.to_string().contains("is not a TAP interface"),
        "{other}"
    );
}
