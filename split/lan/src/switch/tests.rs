//! Scenarios of a unit with hosts, and random event sequences against a simple model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ZERO: Duration = Duration::ZERO;

fn mac(last: u8) -> Mac {
    Mac::new([2, 0, 0, 0, 0, last])
}

fn frame(to: Mac, from: Mac) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&to.octets());
    frame[6..12].copy_from_slice(&from.octets());
    frame
}

struct World {
    switch: Switch,
    to: Vec<PortId>,
    now: Duration,
}

impl World {
    fn new() -> World {
        World {
            switch: Switch::new(Limits {
                ports: 5,
                per_host: 3,
                per_lan: 6,
                groups: 2,
                age: Duration::from_secs(10),
            }),
            to: Vec::new(),
            now: ZERO,
        }
    }

    fn lan(&mut self) -> PortId {
        self.switch.add(Role::Lan).unwrap()
    }

    fn host(&mut self, own: Option<Mac>) -> PortId {
        self.switch.add(Role::Host { own }).unwrap()
    }

    fn forward(&mut self, at: PortId, to: Mac, from: Mac) -> (Verdict, &[PortId]) {
        let bytes = frame(to, from);
        let verdict = self.switch.forward(at, &bytes, self.now, &mut self.to);
        (verdict.unwrap(), &self.to)
    }
}

#[test]
fn p9_hosts_reach_each_other_and_the_lan() {
    let mut w = World::new();
    let (lan, a, b) = (w.lan(), w.host(Some(mac(1))), w.host(Some(mac(2))));
    assert_eq!(w.forward(a, mac(2), mac(1)), (Verdict::Known, &[b][..]));
    // mac 9 is unknown: it can only be on the LAN, as each host has its own address and no other.
    assert_eq!(w.forward(a, mac(9), mac(1)), (Verdict::Unknown, &[lan][..]));
    assert_eq!(w.forward(lan, mac(1), mac(9)), (Verdict::Known, &[a][..]));
    assert_eq!(w.forward(b, mac(9), mac(2)), (Verdict::Known, &[lan][..]));
    let all = (Verdict::Group, &[lan, b][..]);
    assert_eq!(w.forward(a, Mac::BROADCAST, mac(1)), all);
    let local = Verdict::Dropped(Dropped::Local);
    assert_eq!(w.forward(lan, mac(9), mac(8)), (local, &[][..]));
}

#[test]
fn learnt_address_moves_only_after_aging() {
    let mut w = World::new();
    let (lan, a, b) = (w.lan(), w.host(None), w.host(None));
    assert_eq!(
        w.forward(lan, mac(5), mac(9)),
        (Verdict::Unknown, &[a, b][..])
    );
    w.forward(a, mac(9), mac(5));
    assert_eq!(w.forward(lan, mac(5), mac(9)), (Verdict::Known, &[a][..]));
    // Not before the entry has aged: otherwise any host could take it.
    let spoofed = Verdict::Dropped(Dropped::Spoofed);
    assert_eq!(w.forward(b, mac(9), mac(5)), (spoofed, &[][..]));
    assert_eq!(w.forward(lan, mac(5), mac(9)), (Verdict::Known, &[a][..]));
    w.now = Duration::from_secs(10);
    w.forward(b, mac(9), mac(5));
    assert_eq!(w.forward(lan, mac(5), mac(9)), (Verdict::Known, &[b][..]));
}

#[test]
fn host_cannot_take_a_lan_address() {
    let mut w = World::new();
    let (lan, free) = (w.lan(), w.host(None));
    let bridge = w.host(Some(mac(1)));
    w.switch.set_promiscuous(bridge, true).unwrap();
    w.forward(lan, mac(1), mac(9));
    let spoofed = Verdict::Dropped(Dropped::Spoofed);
    for thief in [free, bridge] {
        assert_eq!(w.forward(thief, mac(8), mac(9)), (spoofed, &[][..]));
    }
    assert_eq!(w.switch.port_of(mac(9), w.now), Some(lan));
    // A station that moves from a host to the LAN is found there after its first frame.
    w.forward(free, mac(9), mac(5));
    w.forward(lan, mac(1), mac(5));
    assert_eq!(w.switch.port_of(mac(5), w.now), Some(lan));
}

#[test]
fn promiscuous_host_may_use_other_addresses() {
    let mut w = World::new();
    let (lan, bridge) = (w.lan(), w.host(Some(mac(1))));
    w.switch.set_promiscuous(bridge, true).unwrap();
    assert_eq!(w.forward(bridge, mac(9), mac(7)).1, &[lan]);
    assert_eq!(
        w.forward(lan, mac(7), mac(9)),
        (Verdict::Known, &[bridge][..])
    );
    let (m, port) = (mac(1), bridge);
    let thief = w.switch.add(Role::Host { own: Some(m) });
    assert_eq!(thief, Err(Misuse::Owned { mac: m, port }));
    // Leaving promiscuous mode removes the addresses learnt from it.
    w.switch.set_promiscuous(bridge, false).unwrap();
    assert_eq!(w.switch.port_of(mac(7), w.now), None);
    let spoofed = Verdict::Dropped(Dropped::Spoofed);
    assert_eq!(w.forward(bridge, mac(9), mac(7)).0, spoofed);
    assert_eq!(
        w.forward(lan, mac(1), mac(9)),
        (Verdict::Known, &[bridge][..])
    );
}

#[test]
fn owned_address_cannot_be_taken() {
    let mut w = World::new();
    let (lan, free) = (w.lan(), w.host(None));
    // An address learnt from the free host first gives it no claim.
    w.forward(free, mac(9), mac(1));
    let owner = w.host(Some(mac(1)));
    for thief in [lan, free] {
        let spoofed = Verdict::Dropped(Dropped::Spoofed);
        assert_eq!(w.forward(thief, mac(9), mac(1)), (spoofed, &[][..]));
        assert_eq!(w.switch.statistics(thief).unwrap().spoofed, 1);
    }
    assert_eq!(w.switch.port_of(mac(1), ZERO), Some(owner));
    // The owner of an address may not use a second one.
    let verdict = w.forward(owner, mac(9), mac(7)).0;
    assert_eq!(verdict, Verdict::Dropped(Dropped::Spoofed));
    let role = Role::Host { own: Some(mac(1)) };
    let (m, port) = (mac(1), owner);
    assert_eq!(w.switch.add(role), Err(Misuse::Owned { mac: m, port }));
    assert_eq!(
        w.switch.set_own_mac(free, Some(m)),
        Err(Misuse::Owned { mac: m, port })
    );
}

#[test]
fn owned_address_stays_until_it_is_changed() {
    let mut w = World::new();
    let (lan, a, b) = (w.lan(), w.host(Some(mac(1))), w.host(None));
    w.now = Duration::from_secs(1_000_000);
    w.switch.expire(w.now);
    assert_eq!(w.forward(lan, mac(1), mac(9)), (Verdict::Known, &[a][..]));
    w.switch.set_own_mac(a, Some(mac(2))).unwrap();
    assert_eq!(w.switch.port_of(mac(1), w.now), None);
    w.switch.set_own_mac(b, Some(mac(1))).unwrap();
    assert_eq!(w.forward(lan, mac(1), mac(9)), (Verdict::Known, &[b][..]));
    assert_eq!(w.forward(lan, mac(2), mac(9)), (Verdict::Known, &[a][..]));
    w.switch.set_own_mac(a, None).unwrap();
    assert_eq!(w.switch.port_of(mac(2), w.now), None);
    let lan_owns = w.switch.set_own_mac(lan, Some(mac(3)));
    assert_eq!(lan_owns, Err(Misuse::Lan { port: lan }));
}

#[test]
fn a_hostile_host_fills_its_own_share_only() {
    let mut w = World::new();
    let (lan, bad, good) = (w.lan(), w.host(None), w.host(None));
    for last in 0..=255 {
        w.forward(bad, mac(9), Mac::new([2, 0, 0, 0, 1, last]));
    }
    assert_eq!(w.switch.addresses(), 3);
    assert_eq!(w.switch.statistics(bad).unwrap().unlearnt, 253);
    w.forward(good, mac(9), mac(5));
    w.forward(lan, mac(5), mac(9));
    assert_eq!(w.switch.port_of(mac(5), ZERO), Some(good));
    assert_eq!(w.switch.port_of(mac(9), ZERO), Some(lan));
    // Expired entries make room, and a scan for them happens at most once per interval.
    w.now = Duration::from_secs(10);
    w.forward(bad, mac(9), mac(77));
    assert_eq!(w.switch.port_of(mac(77), w.now), Some(bad));
}

#[test]
fn learnt_address_expires() {
    let mut w = World::new();
    let (lan, a) = (w.lan(), w.host(None));
    w.forward(a, mac(9), mac(1));
    w.now = Duration::from_nanos(9_999_999_999);
    assert_eq!(w.switch.port_of(mac(1), w.now), Some(a));
    w.now = Duration::from_secs(10);
    assert_eq!(w.switch.port_of(mac(1), w.now), None);
    assert_eq!(w.forward(lan, mac(1), mac(9)).0, Verdict::Unknown);
    w.switch.expire(w.now);
    assert_eq!(w.switch.addresses(), 1);
}

#[test]
fn p9_a_host_that_goes_frees_its_addresses() {
    let mut w = World::new();
    let (lan, a, b) = (w.lan(), w.host(None), w.host(Some(mac(2))));
    for last in 10..13 {
        w.forward(a, mac(9), mac(last));
    }
    assert_eq!(w.switch.remove(a).unwrap().received.frames, 3);
    assert_eq!(w.switch.remove(b).unwrap(), Statistics::default());
    assert_eq!(w.switch.addresses(), 0);
    assert_eq!(w.switch.remove(a), Err(Misuse::NoPort { port: a }));
    let again = w.host(Some(mac(2)));
    assert!(again != a && again != b);
    let late = frame(mac(9), mac(10));
    let late = w.switch.forward(a, &late, ZERO, &mut w.to);
    assert_eq!(late, Err(Misuse::NoPort { port: a }));
    assert_eq!(w.forward(lan, mac(2), mac(9)).1, &[again]);
}

#[test]
fn multicast_reaches_subscribed_and_promiscuous_ports() {
    let mut w = World::new();
    let (lan, a, b) = (w.lan(), w.host(Some(mac(1))), w.host(Some(mac(2))));
    let group = |last| Mac::new([0x33, 0x33, 0, 0, 0, last]);
    let some = Multicast::Groups(vec![group(1)]);
    w.switch.set_multicast(a, some).unwrap();
    assert_eq!(w.forward(lan, group(1), mac(9)).1, &[a, b]);
    assert_eq!(w.forward(lan, group(2), mac(9)).1, &[b]);
    assert_eq!(w.forward(lan, Mac::BROADCAST, mac(9)).1, &[a, b]);
    w.switch.set_promiscuous(a, true).unwrap();
    assert_eq!(w.forward(lan, group(2), mac(9)).1, &[a, b]);
    // A promiscuous port receives frames to other stations too, but not its own.
    assert_eq!(w.forward(lan, mac(2), mac(9)).1, &[a, b]);
    assert_eq!(w.forward(b, mac(9), mac(2)).1, &[lan, a]);
    assert_eq!(w.forward(a, mac(9), mac(1)).1, &[lan]);
    let many = Multicast::Groups(vec![group(1), group(2), group(3)]);
    let refused = w.switch.set_multicast(a, many);
    assert_eq!(refused, Err(Misuse::Groups { got: 3, most: 2 }));
    let one = w.switch.set_multicast(a, Multicast::Groups(vec![mac(1)]));
    assert_eq!(one, Err(Misuse::NotGroup { mac: mac(1) }));
}

#[test]
fn malformed_frames_are_dropped_and_not_learnt() {
    let mut w = World::new();
    let (_lan, a) = (w.lan(), w.host(None));
    let good = frame(mac(9), mac(1));
    for len in 0..14 {
        let got = w.switch.forward(a, &good[..len], ZERO, &mut w.to);
        assert_eq!(got, Ok(Verdict::Dropped(Dropped::Malformed)));
    }
    for source in [Mac::BROADCAST, Mac::new([0; 6]), Mac::new([1; 6])] {
        let got = w.forward(a, mac(9), source);
        assert_eq!(got, (Verdict::Dropped(Dropped::Malformed), &[][..]));
    }
    assert_eq!(w.switch.addresses(), 0);
    let bridges = Mac::new([1, 0x80, 0xc2, 0, 0, 0]);
    let got = w.forward(a, bridges, mac(1));
    assert_eq!(got, (Verdict::Dropped(Dropped::Reserved), &[][..]));
    let statistics = w.switch.statistics(a).unwrap();
    assert_eq!((statistics.malformed, statistics.reserved), (17, 1));
    assert_eq!(statistics.received.frames, 18);
}

#[test]
fn port_count_is_limited_and_owners_are_validated() {
    let mut w = World::new();
    for _ in 0..5 {
        w.lan();
    }
    assert_eq!(w.switch.add(Role::Lan), Err(Misuse::Ports { most: 5 }));
    let mut w = World::new();
    for mac in [Mac::BROADCAST, Mac::new([0; 6])] {
        let role = Role::Host { own: Some(mac) };
        assert_eq!(w.switch.add(role), Err(Misuse::NotUnicast { mac }));
    }
    // A failed `add` leaves no owned address behind.
    assert_eq!(w.switch.addresses(), 0);
}

/// One step of a random sequence.
#[derive(Debug, Clone)]
enum Event {
    Lan,
    Host(Option<u8>),
    Remove(usize),
    Own(usize, Option<u8>),
    Promiscuous(usize, bool),
    Groups(usize, Option<u8>),
    Frame { at: usize, to: u8, from: u8 },
    Wait(u64),
    Expire,
}

fn event() -> impl Strategy<Value = Event> {
    let port = 0usize..6;
    let own = || prop::option::of(1u8..6);
    prop_oneof![
        1 => Just(Event::Lan),
        2 => own().prop_map(Event::Host),
        1 => port.clone().prop_map(Event::Remove),
        1 => (port.clone(), own()).prop_map(|(p, o)| Event::Own(p, o)),
        1 => (port.clone(), any::<bool>()).prop_map(|(p, on)| Event::Promiscuous(p, on)),
        1 => (port.clone(), prop::option::of(0u8..3)).prop_map(|(p, g)| Event::Groups(p, g)),
        20 => (port, 0u8..14, 1u8..10).prop_map(|(at, to, from)| Event::Frame { at, to, from }),
        2 => (0u64..6).prop_map(Event::Wait),
        1 => Just(Event::Expire),
    ]
}

/// Targets 0 to 9 are stations (0 belongs to no port), 10 is the broadcast address, 11 to 13 are groups.
fn target(n: u8) -> Mac {
    match n {
        10 => Mac::BROADCAST,
        11.. => Mac::new([3, 0, 0, 0, 0, n - 11]),
        n => mac(n),
    }
}

#[derive(Debug, Clone)]
struct Plain {
    lan: bool,
    own: Option<Mac>,
    promiscuous: bool,
    group: Option<Mac>,
    sent: u64,
}

/// The same rules without the shares: whether a share is full is taken from the switch's answer.
#[derive(Default)]
struct Model {
    ports: BTreeMap<PortId, Plain>,
    last_seen: BTreeMap<Mac, (PortId, Duration)>,
}

impl Model {
    fn owner(&self, mac: Mac) -> Option<PortId> {
        let mut owners = self.ports.iter().filter(|(_, p)| p.own == Some(mac));
        owners.next().map(|(id, _)| *id)
    }

    fn find(&self, mac: Mac, now: Duration) -> Option<PortId> {
        let seen = self.last_seen.get(&mac);
        let fresh = seen.filter(|(_, at)| now - *at < Duration::from_secs(10));
        self.owner(mac).or(fresh.map(|(id, _)| *id))
    }

    fn spoofs(&self, at: PortId, from: Mac, now: Duration) -> bool {
        let port = &self.ports[&at];
        !port.promiscuous && port.own.is_some_and(|own| own != from)
            || self.owner(from).is_some_and(|owner| owner != at)
            || !port.lan && self.find(from, now).is_some_and(|has| has != at)
    }

    fn forward(&self, at: PortId, to: Mac, spoofed: bool, now: Duration) -> Vec<PortId> {
        let place = self.find(to, now);
        let takes = |id: &PortId, port: &Plain| {
            *id != at
                && !spoofed
                && (port.promiscuous
                    || if to.is_group() {
                        to == Mac::BROADCAST || port.group.is_none_or(|group| group == to)
                    } else {
                        place.map_or(port.own.is_none(), |place| place == *id)
                    })
        };
        let takers = self.ports.iter().filter(|(id, port)| takes(id, port));
        takers.map(|(id, _)| *id).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_events_match_the_model(events in prop::collection::vec(event(), 1..80)) {
        let mut w = World::new();
        let mut model = Model::default();
        let mut ids: Vec<PortId> = Vec::new();
        for event in events {
            let pick = |at: usize| ids.get(at % ids.len().max(1)).copied();
            match event {
                Event::Lan | Event::Host(_) => {
                    let (lan, own) = match event {
                        Event::Host(own) => (false, own.map(mac)),
                        _ => (true, None),
                    };
                    let role = if lan { Role::Lan } else { Role::Host { own } };
                    let free = model.ports.len() < 5
                        && own.is_none_or(|own| model.owner(own).is_none());
                    let added = w.switch.add(role);
                    prop_assert_eq!(added.is_ok(), free);
                    if let Ok(id) = added {
                        let plain = Plain { lan, own, promiscuous: false, group: None, sent: 0 };
                        prop_assert!(model.ports.insert(id, plain).is_none());
                        ids.push(id);
                        if let Some(own) = own {
                            model.last_seen.remove(&own);
                        }
                    }
                }
                Event::Remove(at) => if let Some(id) = pick(at) {
                    let last = w.switch.remove(id).unwrap();
                    prop_assert_eq!(last.sent.frames, model.ports[&id].sent);
                    model.ports.remove(&id);
                    model.last_seen.retain(|_, (at, _)| *at != id);
                    ids.retain(|other| *other != id);
                }
                Event::Own(at, own) => if let Some(id) = pick(at) {
                    let own = own.map(mac);
                    let port = &model.ports[&id];
                    let same = port.own == own;
                    let free = own.and_then(|own| model.owner(own)).is_none_or(|o| o == id);
                    let allowed = !port.lan && free;
                    prop_assert_eq!(w.switch.set_own_mac(id, own).is_ok(), allowed);
                    if allowed && !same {
                        model.last_seen.retain(|m, (at, _)| *at != id && Some(*m) != own);
                        if let Some(port) = model.ports.get_mut(&id) {
                            port.own = own;
                        }
                    }
                }
                Event::Promiscuous(at, on) => if let Some(id) = pick(at) {
                    w.switch.set_promiscuous(id, on).unwrap();
                    if let Some(port) = model.ports.get_mut(&id) {
                        port.promiscuous = on;
                        if !on && port.own.is_some() {
                            model.last_seen.retain(|_, (at, _)| *at != id);
                        }
                    }
                }
                Event::Groups(at, group) => if let Some(id) = pick(at) {
                    let group = group.map(|g| target(11 + g));
                    let filter = group.map_or(Multicast::All, |g| Multicast::Groups(vec![g]));
                    w.switch.set_multicast(id, filter).unwrap();
                    if let Some(port) = model.ports.get_mut(&id) {
                        port.group = group;
                    }
                }
                Event::Frame { at, to, from } => if let Some(id) = pick(at) {
                    let (to, from, now) = (target(to), mac(from), w.now);
                    let before = w.switch.statistics(id).unwrap();
                    let verdict = w.forward(id, to, from).0;
                    let after = w.switch.statistics(id).unwrap();
                    // Whether the share is full, from the switch's counter; below the limit every address must be learnt.
                    let full = after.unlearnt > before.unlearnt;
                    let share = model.last_seen.values().filter(|(p, _)| *p == id).count();
                    let most = if model.ports[&id].lan { 6 } else { 3 };
                    prop_assert!(!full || share >= most);
                    let spoofed = model.spoofs(id, from, now);
                    prop_assert_eq!(verdict == Verdict::Dropped(Dropped::Spoofed), spoofed);
                    if !spoofed && !full && model.owner(from).is_none() {
                        model.last_seen.insert(from, (id, now));
                    }
                    let expected = model.forward(id, to, spoofed, now);
                    prop_assert_eq!(&w.to, &expected, "{:?}", verdict);
                    for id in expected {
                        if let Some(port) = model.ports.get_mut(&id) {
                            port.sent += 1;
                        }
                    }
                }
                Event::Wait(seconds) => w.now += Duration::from_secs(seconds),
                Event::Expire => w.switch.expire(w.now),
            }
            // No port exceeds its share, and lookups agree with the model.
            let owned = model.ports.values().filter(|p| p.own.is_some()).count();
            let lans = model.ports.values().filter(|p| p.lan).count();
            let hosts = model.ports.len() - lans;
            prop_assert!(w.switch.addresses() <= owned + 3 * hosts + 6 * lans);
            for n in 0..10 {
                prop_assert_eq!(w.switch.port_of(mac(n), w.now), model.find(mac(n), w.now));
            }
        }
    }
}
