//! One interface opened for several threads: each frame arrives at exactly one of them.

use verbena_lan::{Batch, Error, Frame, Mac, Port, Tap, Vnet, WriteOutcome};

use crate::common::{Netns, privileged, wait_until};

/// The number of flows.
const FLOWS: u8 = 64;

/// Frame number `nth` of a flow.
fn frame(to: Mac, flow: u8, nth: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&to.octets());
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    // 46 bytes of IPv4, UDP, from 192.0.2.1 to 192.0.2.2.
    frame[16..18].copy_from_slice(&[0, 46]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    frame[34..38].copy_from_slice(&[0x40, flow, 0, 53]);
    frame[38..40].copy_from_slice(&[0, 26]);
    frame[58..].copy_from_slice(&[flow, nth]);
    frame
}

/// The frames of this test that each port has received, as flow and number.
fn received_frames(ports: &[Port]) -> Vec<Vec<[u8; 2]>> {
    let mut batch = Batch::new(64);
    let each = ports.iter().map(|port| {
        let mut all = Vec::new();
        while port.read(&mut batch).unwrap().frames > 0 {
            let ours = batch.frames().iter().map(Frame::bytes);
            let ours = ours.filter(|bytes| bytes[6..12] == [2, 0, 0, 0, 0, 9]);
            all.extend(ours.map(|bytes| [bytes[58], bytes[59]]));
        }
        all
    });
    each.collect()
}

/// Waits for `count` frames in all that are the first or second of their flow; other frames may arrive late, and do not count.
fn wait_for_frames(ports: &[Port], count: usize) -> Vec<Vec<[u8; 2]>> {
    wait_for_frames_of(ports, count, |nth| nth < 2)
}

/// Waits for `count` frames in all with such a number; others do not count.
fn wait_for_frames_of(
    ports: &[Port],
    count: usize,
    meant: impl Fn(u8) -> bool,
) -> Vec<Vec<[u8; 2]>> {
    let mut all = vec![Vec::new(); ports.len()];
    wait_until("all have come", || {
        for (all, more) in all.iter_mut().zip(received_frames(ports)) {
            all.extend(more.into_iter().filter(|[_, nth]| meant(*nth)));
        }
        all.iter().map(Vec::len).sum::<usize>() >= count
    });
    all
}

/// Each frame arrived at exactly one port, those of a flow at the same one, and every port has some.
fn assert_distributed(got: &[Vec<[u8; 2]>]) {
    let mut seen: Vec<[u8; 2]> = got.iter().flatten().copied().collect();
    seen.sort_unstable();
    let sent: Vec<[u8; 2]> = (0..FLOWS).flat_map(|f| [[f, 0], [f, 1]]).collect();
    assert_eq!(seen, sent, "each once");
    for (at, mine) in got.iter().enumerate() {
        // Probability that one of four ports gets none of 64 flows: about one in a hundred million.
        assert!(!mine.is_empty(), "port {at} got nothing");
        for [flow, _] in mine {
            let both = mine.iter().filter(|[f, _]| f == flow).count();
            assert_eq!(both, 2, "flow {flow}");
        }
    }
}

#[test]
fn p8_each_frame_reaches_one_port_per_group() {
    privileged("fanout::p8_each_frame_reaches_one_port_per_group", || {
        let (unit, lan) = (Netns::new(), Netns::new());
        unit.connect_veth("u0", &lan, "l0");
        let open = |queues| unit.run(|| Port::open_several("u0", true, queues));
        let ports = open(4).unwrap();
        // Another group and a single port on the same interface receive everything too.
        let others = open(2).unwrap();
        let alone = open(1).unwrap();
        assert!(ports[0].interface().is_promiscuous().unwrap());
        let peer = lan.run(|| Port::open("l0", true)).unwrap();
        let station = Mac::new([2, 0, 0, 0, 0, 7]);
        for to in [station, Mac::BROADCAST] {
            for (flow, nth) in (0..FLOWS).flat_map(|f| [(f, 0), (f, 1)]) {
                let sent = peer.write_frame(&Vnet::PLAIN, &frame(to, flow, nth));
                assert_eq!(sent, Ok(WriteOutcome::Sent));
            }
            for group in [&ports[..], &others, &alone] {
                assert_distributed(&wait_for_frames(group, 2 * usize::from(FLOWS)));
                assert!(
                    received_frames(group).iter().all(Vec::is_empty),
                    "none twice"
                );
            }
        }
        // A sent frame arrives at the peer and at no port of the sender's machine.
        for flow in 0..FLOWS {
            for sender in [&ports[usize::from(flow % 4)], &others[0], &alone[0]] {
                let sent = sender.write_frame(&Vnet::PLAIN, &frame(station, flow, 2));
                assert_eq!(sent, Ok(WriteOutcome::Sent));
            }
        }
        let peer = [peer];
        wait_for_frames_of(&peer, 3 * usize::from(FLOWS), |nth| nth == 2);
        for group in [&ports[..], &others, &alone] {
            assert!(received_frames(group).iter().all(Vec::is_empty), "an echo");
        }
        // Down and up again: the group still shares frames.
        unit.ip("link set u0 down");
        unit.ip("link set u0 up");
        wait_until("frames come again", || {
            peer[0]
                .write_frame(&Vnet::PLAIN, &frame(station, 0, 9))
                .unwrap();
            received_frames(&ports).iter().any(|got| !got.is_empty())
        });
        for (flow, nth) in (0..FLOWS).flat_map(|f| [(f, 0), (f, 1)]) {
            peer[0]
                .write_frame(&Vnet::PLAIN, &frame(station, flow, nth))
                .unwrap();
        }
        assert_distributed(&wait_for_frames(&ports, 2 * usize::from(FLOWS)));
        drop((ports, others, alone));
        let interface = unit.run(|| verbena_lan::Interface::named("u0")).unwrap();
        // A child process of another test may hold copies of the sockets until it calls exec.
        wait_until("no socket receives everything any more", || {
            !interface.is_promiscuous().unwrap()
        });
    });
}

#[test]
fn invalid_queue_counts_are_refused_with_reason() {
    privileged(
        "fanout::invalid_queue_counts_are_refused_with_reason",
        || {
            let space = Netns::new();
            space.ip("link add u0 type veth peer name u1");
            for queues in [0, 65] {
                let no = space.run(|| Port::open_several("u0", true, queues));
                assert!(matches!(no, Err(Error::QueueCount { .. })), "{no:?}");
            }
            // Before Linux 6.13 the interface must be up.
            match space.run(|| Port::open_several("u0", true, 2)) {
                Ok(ports) => assert_eq!(ports.len(), 2),
                Err(error) => assert_eq!(error, Error::Down { name: "u0".into() }),
            }
            space.ip("tuntap add dev single mode tap");
            space.ip("tuntap add dev many mode tap multi_queue");
            let no = space.run(|| Tap::create("single", 2)).unwrap_err();
            assert!(no.to_string().contains("multi_queue"), "{no}");
            let no = space.run(|| Tap::create("many", 1)).unwrap_err();
            for what in ["without multi_queue", "--queues 2"] {
                assert!(no.to_string().contains(what), "{no}");
            }
            let many = space.run(|| Tap::create("many", 2)).unwrap();
            assert_eq!(many.queues().len(), 2);
        },
    );
}
