//! Whole networks: delivery through switches and routers, faults, cuts, mirroring, and random topologies from seeds.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use etherparse::{IpNumber, Ipv4Header};
use proptest::prelude::*;

use super::*;
use crate::faults::Ratio;
use crate::rng::Rng;

const MS: Duration = Duration::from_millis(1);

fn mac(host: usize) -> Mac {
    Mac::local(0x0100_0000_0000 | host as u64)
}

/// An Ethernet frame of an unassigned type, with a mark.
fn frame(from: Mac, to: Mac, mark: u32) -> Frame {
    let mut bytes = [&to.octets()[..], &from.octets(), &[0x88, 0xb5]].concat();
    bytes.extend_from_slice(&mark.to_be_bytes());
    bytes.resize(60, 0);
    Frame::plain(bytes)
}

fn port(node: NodeId) -> PortRef {
    PortRef { node, port: 0 }
}

fn outputs(fabric: &mut Fabric) -> Vec<PortRef> {
    let all = core::iter::from_fn(|| fabric.take_output());
    all.map(|(at, _)| at).collect()
}

/// Two hosts at a switch, and the links.
fn pair(seed: u64) -> (Fabric, [NodeId; 2], [LinkId; 2]) {
    let mut fabric = Fabric::new(seed);
    let switch = fabric.add_switch(SwitchOptions::default()).unwrap();
    let hosts = [(); 2].map(|()| fabric.add_host().unwrap());
    let links = hosts.map(|host| fabric.link(host, switch, &LinkOptions::default()).unwrap());
    (fabric, hosts, links)
}

#[test]
fn frame_crosses_a_switch_at_once() {
    let (mut fabric, [a, b], _) = pair(1);
    fabric
        .inject(port(a), frame(mac(0), mac(1), 1), MS)
        .unwrap();
    assert_eq!(outputs(&mut fabric), [port(b)]);
    assert_eq!(fabric.next_event(), None);
}

#[test]
fn delay_holds_a_frame_until_its_time() {
    let (mut fabric, [a, b], links) = pair(1);
    let faults = Faults {
        delay: 5 * MS,
        ..Faults::NONE
    };
    fabric.set_faults(links[0], faults, MS);
    fabric.set_faults(links[1], faults, MS);
    fabric
        .inject(port(a), frame(mac(0), mac(1), 1), 10 * MS)
        .unwrap();
    fabric.advance(19 * MS);
    assert_eq!(outputs(&mut fabric), []);
    assert_eq!(fabric.next_event(), Some(20 * MS));
    fabric.advance(20 * MS);
    assert_eq!(outputs(&mut fabric), [port(b)]);
}

#[test]
fn cut_drops_what_is_on_the_way() {
    let (mut fabric, [a, b], links) = pair(1);
    let faults = Faults {
        delay: 5 * MS,
        ..Faults::NONE
    };
    fabric.set_faults(links[1], faults, MS);
    fabric
        .inject(port(a), frame(mac(0), mac(1), 1), MS)
        .unwrap();
    fabric.set_up(links[1], false, 2 * MS);
    fabric
        .inject(port(a), frame(mac(0), mac(1), 2), 3 * MS)
        .unwrap();
    fabric.set_up(links[1], true, 4 * MS);
    fabric
        .inject(port(a), frame(mac(0), mac(1), 3), 5 * MS)
        .unwrap();
    fabric.advance(100 * MS);
    assert_eq!(outputs(&mut fabric), [port(b)]);
    assert_eq!(fabric.counters(links[1]).unwrap()[1].cut, 2);
}

#[test]
fn seed_repeats_a_run_exactly() {
    let run = |seed| {
        let (mut fabric, [a, _], links) = pair(seed);
        let faults = Faults {
            loss: Ratio::millionths(200_000),
            repeat: Ratio::millionths(100_000),
            jitter: 3 * MS,
            bandwidth: Some(1_000_000),
            ..Faults::NONE
        };
        fabric.set_faults(links[0], faults, Duration::ZERO);
        let mut seen = Vec::new();
        for mark in 0..500 {
            let now = MS * mark;
            fabric
                .inject(port(a), frame(mac(0), mac(1), mark), now)
                .unwrap();
            while let Some((_, frame)) = fabric.take_output() {
                seen.push((now, frame.bytes[17]));
            }
        }
        seen
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn mirror_copies_are_bounded() {
    let (mut fabric, [a, _], links) = pair(1);
    fabric.set_mirrored(links[0], true);
    for mark in 0..5000 {
        fabric
            .inject(port(a), frame(mac(0), mac(1), mark), MS)
            .unwrap();
        outputs(&mut fabric);
    }
    let copy = fabric.take_mirrored().unwrap();
    assert_eq!((copy.link, copy.direction, copy.at), (links[0], 0, MS));
    assert_eq!(copy.frame.bytes, frame(mac(0), mac(1), 0).bytes);
    assert_eq!(fabric.unmirrored(), 5000 - MOST_MIRRORED as u64);
}

#[test]
fn wrong_arguments_are_misuse() {
    let (mut fabric, [a, _], _) = pair(1);
    let options = LinkOptions::default();
    assert!(matches!(
        fabric.link(a, a, &options),
        Err(Misuse::Itself { .. })
    ));
    assert!(matches!(
        fabric.link(a, NodeId(99), &options),
        Err(Misuse::Kind { .. })
    ));
    let mut wrong = options.clone();
    wrong.ends[0].mode = PortMode::Access(4095);
    assert_eq!(
        fabric.link(a, NodeId(0), &wrong),
        Err(Misuse::Vlan { vlan: 4095 })
    );
    let at = PortRef {
        node: NodeId(0),
        port: 0,
    };
    assert!(fabric.inject(at, Frame::default(), MS).is_err(), "a switch");
    let at = PortRef { node: a, port: 1 };
    assert!(fabric.inject(at, Frame::default(), MS).is_err());
    let route = Route {
        network: "0.0.0.0/0".parse().unwrap(),
        hops: Vec::new(),
    };
    assert!(fabric.add_route(a, route).is_err());
}

#[test]
fn short_frames_go_nowhere() {
    let (mut fabric, [a, _], links) = pair(1);
    for len in 0..ETH_LEN {
        fabric
            .inject(port(a), Frame::plain(vec![0xff; len]), MS)
            .unwrap();
    }
    assert_eq!(outputs(&mut fabric), []);
    assert_eq!(fabric.counters(links[0]).unwrap()[0], Counters::default());
}

/// A network from a seed: segments of switches in random loops, joined by routers, with hosts that answer ARP.
struct World {
    fabric: Fabric,
    hosts: Vec<Host>,
    /// By node: the host's index.
    by_node: BTreeMap<NodeId, usize>,
    /// Links that may be cut, with their ends.
    links: Vec<(LinkId, NodeId, NodeId)>,
    rng: Rng,
}

struct Host {
    node: NodeId,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let mut fabric = Fabric::new(seed);
        let segments = 1 + rng.below(4) as usize;
        let options = LinkOptions::default();
        let (mut hosts, mut links, mut switches) = (Vec::new(), Vec::new(), Vec::new());
        for segment in 0..segments {
            let count = 1 + rng.below(4) as usize;
            let own: Vec<NodeId> = (0..count)
                .map(|_| fabric.add_switch(SwitchOptions::default()).unwrap())
                .collect();
            let mut join = |fabric: &mut Fabric, a, b| {
                links.push((fabric.link(a, b, &options).unwrap(), a, b));
            };
            for index in 1..count {
                let other = rng.below(index as u64) as usize;
                join(&mut fabric, own[index], own[other]);
            }
            for _ in 0..rng.below(5) {
                let (a, b) = (rng.below(count as u64), rng.below(count as u64));
                if a != b {
                    join(&mut fabric, own[a as usize], own[b as usize]);
                }
            }
            for number in 0..1 + rng.below(3) as u8 {
                let node = fabric.add_host().unwrap();
                let switch = own[rng.below(count as u64) as usize];
                join(&mut fabric, node, switch);
                hosts.push(Host {
                    node,
                    address: Ipv4Addr::new(10, segment as u8, 0, number + 1),
                    gateway: Ipv4Addr::new(10, segment as u8, 0, 200),
                });
            }
            switches.push(own);
        }
        // A router between each segment and the next, and some more; the first of a segment is its gateway.
        let mut next = vec![200u8; segments];
        let further = rng.below(2) as usize;
        for number in 0..(segments - 1) + if segments > 1 { further } else { 0 } {
            let (a, b) = match number {
                number if number + 1 < segments => (number, number + 1),
                _ => (0, segments - 1),
            };
            let router = fabric.add_router().unwrap();
            for segment in [a, b] {
                let mut options = LinkOptions::default();
                let address = Ipv4Addr::new(10, segment as u8, 0, next[segment]);
                next[segment] += 1;
                options.ends[0].addresses = Prefix::new(address.into(), 24).into_iter().collect();
                let own = &switches[segment];
                let switch = own[rng.below(own.len() as u64) as usize];
                links.push((
                    fabric.link(router, switch, &options).unwrap(),
                    router,
                    switch,
                ));
            }
        }
        let by_node = hosts
            .iter()
            .enumerate()
            .map(|(i, host)| (host.node, i))
            .collect();
        World {
            fabric,
            hosts,
            by_node,
            links,
            rng,
        }
    }

    fn packet(&self, from: usize, to: usize, mark: u32, gateway: Option<Mac>) -> Frame {
        let (source, target) = (&self.hosts[from], &self.hosts[to]);
        let mut header = Ipv4Header::new(
            4,
            64,
            IpNumber::UDP,
            source.address.octets(),
            target.address.octets(),
        )
        .unwrap();
        header.header_checksum = header.calc_header_checksum();
        let next = gateway.unwrap_or(mac(to));
        let head = [&next.octets()[..], &mac(from).octets(), &[8, 0]].concat();
        Frame::plain([&head[..], &header.to_bytes(), &mark.to_be_bytes()].concat())
    }

    /// Asks for an address by ARP, as a host does; the link address that answers.
    fn ask(&mut self, from: usize, asked: Ipv4Addr, now: Duration) -> Option<Mac> {
        let own = mac(from);
        let question = arp(1, own, self.hosts[from].address, Mac::BROADCAST, asked);
        let at = port(self.hosts[from].node);
        self.fabric.inject(at, question, now).unwrap();
        let mut answer = None;
        self.answer(now, |host, frame| {
            let is_reply = frame.bytes[12..14] == [8, 6] && frame.bytes[21] == 2;
            if host == from && is_reply && frame.bytes[28..32] == asked.octets() {
                answer = frame.source();
            }
        });
        answer
    }

    /// Delivers outputs, and answers ARP for the hosts, until the network is quiet for three seconds.
    fn answer(&mut self, now: Duration, mut see: impl FnMut(usize, &Frame)) {
        let mut frames = 0;
        loop {
            while let Some((at, frame)) = self.fabric.take_output() {
                frames += 1;
                assert!(frames < 20_000, "a loop");
                let host = self.by_node[&at.node];
                see(host, &frame);
                let own = self.hosts[host].address;
                let asks = frame.bytes[12..14] == [8, 6] && frame.bytes[21] == 1;
                if asks && frame.bytes[38..42] == own.octets() {
                    let sender = Ipv4Addr::from(*frame.bytes[28..].first_chunk::<4>().unwrap());
                    let reply = arp(2, mac(host), own, frame.source().unwrap(), sender);
                    self.fabric.inject(at, reply, now).unwrap();
                }
            }
            match self.fabric.next_event() {
                Some(at) if at <= now + Duration::from_secs(3) => self.fabric.advance(at),
                _ => return,
            }
        }
    }

    /// Nodes that a host reaches over links that are up, without passing other hosts; `routers` tells whether routers are passed.
    fn reach(&self, from: NodeId, routers: bool) -> BTreeSet<NodeId> {
        let mut seen = BTreeSet::from([from]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            let passes = match self.fabric.nodes[node.0].kind {
                Kind::Host => node == from,
                Kind::Switch(_) => true,
                Kind::Router(_) => routers,
            };
            if !passes {
                continue;
            }
            for (link, a, b) in &self.links {
                let other = if *a == node { b } else { a };
                if (*a == node || *b == node) && self.fabric.is_up(*link) && seen.insert(*other) {
                    queue.push_back(*other);
                }
            }
        }
        seen
    }
}

fn arp(operation: u8, from: Mac, sender: Ipv4Addr, to: Mac, asked: Ipv4Addr) -> Frame {
    let head = [&to.octets()[..], &from.octets(), &[8, 6]].concat();
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    let target = if operation == 2 { to } else { Mac::new([0; 6]) };
    let body = [
        &fixed[..],
        &from.octets(),
        &sender.octets(),
        &target.octets(),
        &asked.octets(),
    ]
    .concat();
    Frame::plain([head, body].concat())
}

/// Sends packets between hosts of a random topology while links are cut and mended. Within a segment, a packet arrives exactly if there is
/// a way, at its host and nowhere else. Through the gateway it arrives at most once, and exactly once if nothing was ever cut.
fn run_random(seed: u64) {
    let mut world = World::new(seed);
    let mut now = Duration::from_secs(10);
    let mut cuts = 0;
    for mark in 0..12 {
        now += Duration::from_secs(100);
        let count = world.hosts.len() as u64;
        if mark > 4 {
            let (link, ..) = world.links[world.rng.below(world.links.len() as u64) as usize];
            let up = world.rng.below(3) == 0;
            cuts += u32::from(!up);
            world.fabric.set_up(link, up, now);
        }
        let (from, to) = (
            world.rng.below(count) as usize,
            world.rng.below(count) as usize,
        );
        if from == to {
            continue;
        }
        let [own, other] =
            [from, to].map(|host| (world.hosts[host].node, world.hosts[host].address));
        let same = own.1.octets()[1] == other.1.octets()[1];
        let next = if same {
            other.1
        } else {
            world.hosts[from].gateway
        };
        let is_near = world.reach(own.0, false).contains(&other.0);
        let is_far = world.reach(own.0, true).contains(&other.0);
        let hop = world.ask(from, next, now);
        if same {
            assert_eq!(hop.is_some(), is_near, "seed {seed}, {mark}: ARP");
        }
        let Some(hop) = hop else { continue };
        let gateway = (!same).then_some(hop);
        let packet = world.packet(from, to, mark, gateway);
        world.fabric.inject(port(own.0), packet, now).unwrap();
        let mut arrived = 0;
        world.answer(now, |host, frame| {
            if frame.bytes[12..14] == [8, 0] && frame.bytes[23] == 17 {
                assert_eq!(host, to, "seed {seed}, {mark}: arrived elsewhere");
                arrived += 1;
            }
        });
        assert!(arrived <= 1, "seed {seed}, {mark}: arrived {arrived} times");
        if same || cuts == 0 {
            assert_eq!(arrived, 1, "seed {seed}, {mark}: {own:?} to {other:?}");
        }
        assert!(arrived == 0 || is_far);
        assert_eq!(world.fabric.looped(), 0, "seed {seed}");
    }
}

#[test]
fn random_topologies_deliver_exactly_once() {
    let long = std::env::var_os("LONG_TESTS").is_some();
    for seed in 0..if long { 100_000 } else { 1_000 } {
        run_random(seed);
    }
}

#[test]
fn two_paths_share_flows_and_survive_a_cut() {
    // A host, a router, two routers side by side, a router, a host.
    let mut fabric = Fabric::new(3);
    let hosts = [(); 2].map(|()| fabric.add_host().unwrap());
    let ends = [(); 2].map(|()| fabric.add_router().unwrap());
    let middle = [(); 2].map(|()| fabric.add_router().unwrap());
    let mut link = |a, b, own: &str, other: &str| {
        let mut options = LinkOptions::default();
        for (end, text) in options.ends.iter_mut().zip([own, other]) {
            end.addresses = text.parse().into_iter().collect();
        }
        fabric.link(a, b, &options).unwrap()
    };
    link(hosts[0], ends[0], "", "10.1.0.254/24");
    link(hosts[1], ends[1], "", "10.2.0.254/24");
    let first = link(ends[0], middle[0], "10.3.0.1/24", "10.3.0.2/24");
    link(middle[0], ends[1], "10.4.0.1/24", "10.4.0.2/24");
    let second = link(ends[0], middle[1], "10.5.0.1/24", "10.5.0.2/24");
    link(middle[1], ends[1], "10.6.0.1/24", "10.6.0.2/24");
    let destination = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1));
    let route = fabric.routes(ends[0]).iter();
    let mut route = route.filter(|route| route.network.contains(destination));
    assert_eq!(route.next().unwrap().hops.len(), 2);

    let addresses = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];
    let world_hosts = hosts.iter().zip(addresses).map(|(node, address)| Host {
        node: *node,
        address,
        gateway: address,
    });
    let mut world = World {
        by_node: BTreeMap::from([(hosts[0], 0), (hosts[1], 1)]),
        hosts: world_hosts.collect(),
        links: Vec::new(),
        rng: Rng::new(0),
        fabric,
    };
    let gateway = world.ask(0, Ipv4Addr::new(10, 1, 0, 254), MS).unwrap();
    let send = |world: &mut World, now: Duration| {
        let mut arrived = 0;
        for mark in 0..64u32 {
            // The mark is where UDP has its ports.
            let packet = world.packet(0, 1, mark << 16, Some(gateway));
            world.fabric.inject(port(hosts[0]), packet, now).unwrap();
            world.answer(now, |host, frame| {
                arrived += u32::from(host == 1 && frame.bytes[12..14] == [8, 0]);
            });
        }
        arrived
    };
    assert_eq!(send(&mut world, 10 * MS), 64);
    let frames = |fabric: &Fabric, link| fabric.counters(link).unwrap()[0].frames;
    let both = [first, second].map(|link| frames(&world.fabric, link));
    assert!(both.iter().all(|frames| *frames > 10), "{both:?}");
    world.fabric.set_up(first, false, Duration::from_secs(20));
    assert_eq!(send(&mut world, Duration::from_secs(20)), 64);
    assert_eq!(frames(&world.fabric, first), both[0]);
}

/// Headers that lead deep into switches and routers, in front of arbitrary bytes.
fn hostile_frame() -> impl Strategy<Value = Vec<u8>> {
    let router = Mac::local(3).octets();
    let macs = prop::sample::select(vec![
        [0xff; 6],
        router,
        mac(0).octets(),
        [0; 6],
        [1, 0x80, 0xc2, 0, 0, 0],
        [0x33, 0x33, 0, 0, 0, 1],
    ]);
    let tags = prop::collection::vec(
        prop::sample::select(vec![
            [0x81, 0, 0, 5],
            [0x88, 0xa8, 0, 5],
            [0x81, 0, 0xef, 0xff],
        ]),
        0..4,
    );
    let kinds = prop::sample::select(vec![[8, 0], [8, 6], [0x86, 0xdd], [0, 46], [0x88, 0xcc]]);
    let first = prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0x00]);
    let rest = prop::collection::vec(any::<u8>(), 0..200);
    (macs.clone(), macs, tags, kinds, first, rest, 0..250usize).prop_map(
        |(to, from, tags, kind, first, rest, len)| {
            let mut frame = [&to[..], &from, &tags.concat(), &kind, &[first], &rest].concat();
            frame.truncate(len);
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn hostile_frames_neither_panic_nor_multiply(
        frames in prop::collection::vec(hostile_frame(), 1..30),
        gso in any::<bool>(),
    ) {
        // A ring of three switches, two hosts, a router, and a VLAN on a part of it.
        let mut fabric = Fabric::new(1);
        let host = fabric.add_host().unwrap();
        let router = fabric.add_router().unwrap();
        let switches = [(); 3].map(|()| fabric.add_switch(SwitchOptions::default()).unwrap());
        let plain = LinkOptions::default();
        fabric.link(host, switches[0], &plain).unwrap();
        let mut options = LinkOptions::default();
        options.ends[1].addresses = vec!["10.0.0.254/24".parse().unwrap(), "fd00::254/64".parse().unwrap()];
        fabric.link(switches[1], router, &options).unwrap();
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            fabric.link(switches[a], switches[b], &plain).unwrap();
        }
        let trunk = fabric.add_switch(SwitchOptions::default()).unwrap();
        let other = fabric.add_host().unwrap();
        for (node, mode) in [(other, PortMode::Trunk), (switches[2], PortMode::Access(5))] {
            let mut options = LinkOptions::default();
            options.ends[1].mode = mode;
            fabric.link(node, trunk, &options).unwrap();
        }
        let mut now = MS;
        for bytes in frames {
            let mut frame = Frame::plain(bytes);
            if gso {
                frame.vnet.partial = Some(verbena_lan::PartialChecksum { start: 65535, offset: 65535 });
                frame.vnet.gso = Some(verbena_lan::Gso {
                    kind: verbena_lan::GsoKind::Tcp4,
                    size: 65535,
                    headers: 65535,
                    ecn: true,
                });
            }
            for node in [host, other] {
                fabric.inject(port(node), frame.clone(), now).unwrap();
            }
            now += MS;
        }
        fabric.advance(now + Duration::from_secs(10));
        prop_assert!(outputs(&mut fabric).len() <= 30 * 2 * 4);
        prop_assert_eq!(fabric.looped(), 0);
        prop_assert_eq!(fabric.next_event(), None);
    }
}
