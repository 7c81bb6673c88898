//! Two links on real carriers, iWARP with and without TLS and cells over UDP, in every arrangement. They check that on acknowledged
//! channels no packet is lost, duplicated, changed or reordered, that credit is not exceeded, and that memory is not reported free too
//! early. They use loopback only.

mod channel_events;

use std::time::{Duration, Instant};

use verbena::Config;
use verbena_lan::VNET_HDR_LEN;
use verbena_nic::wr::RemoteAddr;
use verbena_push::{Arrangement, IndicationMode, Refused};
use verbena_split_wire::push::{Operation, Status};
use verbena_testing::wait_for;

use super::perform::{PACKET, id};
use super::{Link, LinkError, LinkEvent, LinkOptions};
use crate::carrier::address::Address;
use crate::carrier::iwarp::IwarpCarrier;
use crate::carrier::{Carrier, CarrierEvent, open};
use crate::channel_kinds::ChannelKinds;
use crate::hello::{Hello, connected_channels};
use crate::welcome::Welcome;

const PATIENCE: Duration = Duration::from_secs(20);

struct Side {
    carrier: Box<dyn Carrier>,
    link: Link,
    lost: Option<String>,
    ended: bool,
}

impl Side {
    /// One turn of the carrier and the link.
    fn turn(&mut self) {
        let now = Instant::now();
        let mut done = Vec::new();
        self.carrier.turn(now, &mut done).unwrap();
        for wc in done {
            let handled = self.link.handle(&mut *self.carrier, &wc, now);
            self.note(handled);
        }
        let ticked = self.link.tick(&mut *self.carrier, now);
        self.note(ticked);
    }

    fn note(&mut self, done: Result<(), LinkError>) {
        if let Err(lost) = done {
            self.lost.get_or_insert(lost.to_string());
        }
    }

    fn handle_events(&mut self) {
        while let Some(news) = self.carrier.next_event() {
            match news {
                CarrierEvent::Connected { pair, private_data } => {
                    if let Some(number) = Welcome::data_pair(&private_data) {
                        let bound = self.link.bind_datagrams(&mut *self.carrier, number);
                        bound.unwrap();
                    }
                    self.link.connected(&mut *self.carrier, pair).unwrap();
                }
                CarrierEvent::Request {
                    ticket,
                    private_data: private,
                    ..
                } => {
                    let hello = Hello::parse(&private).unwrap();
                    let pair = self.link.pair(hello.channel).unwrap();
                    let welcome = Welcome(1).with_data_pair(self.link.datagram_pair());
                    self.carrier.accept(ticket, pair, &welcome).unwrap();
                    if let Some(number) = hello.data_pair {
                        let bound = self.link.bind_datagrams(&mut *self.carrier, number);
                        bound.unwrap();
                    }
                }
                CarrierEvent::Refused { why, .. } | CarrierEvent::Rejected { why, .. } => {
                    panic!("{why}")
                }
                CarrierEvent::Ended { .. } => self.ended = true,
            }
        }
    }

    fn send(&mut self, packet: &[u8]) -> Result<(), Refused> {
        self.link.send(&packet[..1], &packet[1..])
    }

    /// The next packet, copied.
    fn packet(&mut self) -> Option<Vec<u8>> {
        let copy = |memory: &dyn crate::carrier::Memory, offset, len| {
            let mut copy = vec![0; len];
            assert!(memory.read(offset, &mut copy));
            copy
        };
        self.link.with_packet(copy).unwrap()
    }
}

/// A configuration with TLS and this key.
fn encrypted(key: &str) -> Config {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    config.set("key", key).unwrap();
    config.set("tls", "psk").unwrap();
    config
}

/// A dialler, and the listener that it dials.
fn carriers(scheme: &str) -> [Box<dyn Carrier>; 2] {
    if scheme == "psk" {
        let config = || encrypted("the key of both sides");
        let listener = IwarpCarrier::listen("127.0.0.1:0".parse().unwrap(), config()).unwrap();
        let dialler = IwarpCarrier::dial(listener.address().unwrap(), config()).unwrap();
        return [Box::new(dialler), Box::new(listener)];
    }
    let any: Address = format!("{scheme}://127.0.0.1:0").parse().unwrap();
    let listener = open::listen(&any, None).unwrap();
    let local = listener.local_addr();
    let at = local.rsplit_once("://").map_or(&*local, |(_, at)| at);
    let unit: Address = format!("{scheme}://{at}").parse().unwrap();
    [open::dial(&unit, None).unwrap(), listener]
}

/// A dialler and a listener, connected.
fn pair(scheme: &str, arrangement: Arrangement, elements: u32) -> [Side; 2] {
    pair_with(scheme, LinkOptions::new(arrangement, elements, 3000))
}

fn pair_with(scheme: &str, options: LinkOptions) -> [Side; 2] {
    connected(carriers(scheme), options)
}

fn connected(carriers: [Box<dyn Carrier>; 2], options: LinkOptions) -> [Side; 2] {
    let LinkOptions {
        arrangement, kinds, ..
    } = options;
    let mut sides = carriers.map(|mut carrier| Side {
        link: Link::new(&mut *carrier, options, Instant::now()).unwrap(),
        carrier,
        lost: None,
        ended: false,
    });
    for channel in 0..connected_channels(arrangement, kinds) {
        let [dialler, _] = &mut sides;
        let hello = Hello {
            service: 7,
            arrangement,
            channel,
            lane: crate::lane::Lane::ONLY,
            kinds: (kinds != ChannelKinds::of(arrangement)).then_some(kinds),
            data_pair: dialler.link.datagram_pair(),
            name: String::new(),
        };
        let pair = dialler.link.pair(channel).unwrap();
        dialler.carrier.connect(pair, &hello.to_bytes()).unwrap();
    }
    until(&mut sides, |sides| {
        sides.iter().all(|side| side.link.has_room())
    });
    sides
}

fn until(sides: &mut [Side; 2], mut so: impl FnMut(&mut [Side; 2]) -> bool) {
    let start = Instant::now();
    loop {
        for side in sides.iter_mut() {
            side.turn();
            side.handle_events();
        }
        if so(sides) {
            return;
        }
        let states = sides.each_ref().map(|side| (&side.lost, side.link.free()));
        assert!(start.elapsed() < PATIENCE, "never: {states:?}");
    }
}

const SCHEMES: [&str; 3] = ["iwarp", "psk", "udp"];

fn for_each_pair(mut test: impl FnMut([Side; 2], bool)) {
    for scheme in SCHEMES {
        for arrangement in Arrangement::ALL {
            let lossless = scheme != "udp" || arrangement != Arrangement::Sends;
            println!("{scheme} {arrangement:?}");
            test(pair(scheme, arrangement, 8), lossless);
        }
    }
}

/// A packet with its number in it, and a length derived from it.
fn numbered_packet(number: u32) -> Vec<u8> {
    let len = 5 + (number * 37) as usize % 2990;
    let mut packet = vec![number as u8; len];
    packet[..4].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Many more packets than elements, in both directions at once: unchanged and in order, and complete if the channel is lossless.
#[test]
fn packets_pass_both_ways_and_credit_returns() {
    for_each_pair(|mut sides, lossless| exchange(&mut sides, lossless));
}

fn exchange(sides: &mut [Side; 2], lossless: bool) {
    const MANY: u32 = 300;
    // A connectionless packet that was sent again arrives after later ones.
    let ordered = !sides[0].link.options().kinds.connectionless;
    let (mut sent, mut came) = ([0; 2], [Vec::new(), Vec::new()]);
    until(sides, |sides| {
        for (at, side) in sides.iter_mut().enumerate() {
            while sent[at] < MANY && side.link.has_room() {
                side.send(&numbered_packet(sent[at])).unwrap();
                sent[at] += 1;
            }
            while let Some(packet) = side.packet() {
                let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
                assert!(
                    packet == numbered_packet(number),
                    "packet {number} is changed"
                );
                let follows = came[at].last().is_none_or(|last| *last < number);
                assert!(follows || !ordered, "order");
                assert!(!came[at].contains(&number), "{number} came twice");
                came[at].push(number);
            }
        }
        let through = |numbers: &Vec<u32>| numbers.len() as u32 == MANY;
        let enough = |numbers: &Vec<u32>| numbers.last() == Some(&(MANY - 1));
        if lossless {
            came.iter().all(through)
        } else {
            came.iter().all(enough)
        }
    });
    for side in sides {
        assert_eq!(side.lost, None);
        assert_eq!(side.link.counters().violations.total(), 0);
    }
}

/// P2: the same with each kind of channel that an arrangement can have besides its own.
#[test]
fn packets_pass_on_every_kind_of_channel() {
    for arrangement in Arrangement::ALL {
        for (acknowledged, connectionless) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let kinds = ChannelKinds {
                acknowledged,
                connectionless,
            };
            let options = LinkOptions {
                kinds,
                ..LinkOptions::new(arrangement, 8, 3000)
            };
            if kinds.check(arrangement).is_err() {
                let [mut carrier, _] = carriers("udp");
                let refused = Link::new(&mut *carrier, options, Instant::now());
                assert!(matches!(refused, Err(LinkError::Kinds(_))));
                continue;
            }
            println!("{arrangement:?}: {kinds}");
            exchange(&mut pair_with("udp", options), acknowledged);
        }
    }
}

/// P7: each form of the indication, chosen by the sender; the receiver accepts all.
#[test]
fn indication_is_as_chosen() {
    for scheme in SCHEMES {
        for indication in [
            IndicationMode::Immediate,
            IndicationMode::Element,
            IndicationMode::Address,
        ] {
            let options = LinkOptions {
                indication,
                ..LinkOptions::new(Arrangement::Writes, 8, 3000)
            };
            let mut sides = pair_with(scheme, options);
            exchange(&mut sides, true);
            let immediate = indication == IndicationMode::Immediate;
            for side in &sides {
                let counters = side.link.counters();
                assert_eq!(counters.immediates_out > 0, immediate, "{indication:?}");
                assert_eq!(counters.indications_out > 0, !immediate, "{indication:?}");
                assert_eq!(counters.indications_in > 0, !immediate, "{indication:?}");
            }
        }
    }
}

#[test]
fn connectionless_channels_need_cells() {
    let options = LinkOptions {
        kinds: ChannelKinds {
            acknowledged: true,
            connectionless: true,
        },
        ..LinkOptions::new(Arrangement::Writes, 8, 3000)
    };
    let [mut carrier, _] = carriers("iwarp");
    let refused = Link::new(&mut *carrier, options, Instant::now());
    let why = refused.err().map(|lost| lost.to_string()).unwrap();
    assert!(why.contains("need udp:// or ethernet://"), "{why}");
    // Packets are no longer than a cell, and a cell must hold a frame.
    let local = carriers("udp")[1].local_addr();
    let unit: Address = format!("udp://{local}").parse().unwrap();
    let mut carrier = open::dial(&unit, Some(1000)).unwrap();
    let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
    assert_eq!(link.options().size, 1000);
    let mut carrier = open::dial(&unit, Some(127)).unwrap();
    let refused = Link::new(&mut *carrier, options, Instant::now());
    assert!(matches!(refused, Err(LinkError::ShortCells(127))));
}

#[test]
fn requests_get_their_replies() {
    for_each_pair(|mut sides, _| {
        let context = sides[0].link.request(Operation::GetMac, b"who").unwrap();
        until(&mut sides, |[_, unit]| {
            let Some(LinkEvent::Request { context, data, .. }) = unit.link.next_event() else {
                return false;
            };
            unit.link.reply(context, Status::Ok, &data).unwrap();
            true
        });
        until(&mut sides, |[host, _]| {
            let Some(event) = host.link.next_event() else {
                return false;
            };
            let LinkEvent::Reply {
                context: of, data, ..
            } = event
            else {
                panic!("{event:?}");
            };
            assert_eq!((of, &data[..]), (context, &b"who"[..]));
            true
        });
    });
}

/// P6: a pool is free when the peer has stopped using it, and not before.
#[test]
fn pool_is_freed_after_the_peer_stops() {
    for_each_pair(|mut sides, _| {
        sides[0].send(&numbered_packet(1)).unwrap();
        sides[1].link.recall().unwrap();
        assert!(!sides[1].link.is_freed());
        let mut came = 0;
        until(&mut sides, |[_, unit]| {
            came += usize::from(unit.packet().is_some());
            unit.link.is_freed() && came == 1
        });
        // The peer has no room there any more.
        let refused = sides[0].send(&numbered_packet(2));
        assert!(refused.is_err(), "{refused:?}");
    });
}

#[test]
fn only_too_long_packets_are_refused() {
    for_each_pair(|mut sides, _| {
        let long = sides[0].send(&[1; 3001]);
        assert_eq!(
            long,
            Err(Refused::TooLong {
                len: 3001,
                most: 3000
            })
        );
        let none = sides[0].link.send_with(|_, _| None);
        assert_eq!(none, Ok(false));
        let longest = [1; 3000];
        sides[0].send(&longest).unwrap();
        until(&mut sides, |[_, unit]| {
            unit.packet().is_some_and(|packet| packet == longest)
        });
    });
}

/// Nothing is queued for a peer that takes no packets: the sender finds no room.
#[test]
fn slow_peer_leaves_the_sender_no_room() {
    for_each_pair(|mut sides, _| {
        let mut sent = 0;
        until(&mut sides, |[host, unit]| {
            if host.link.has_room() {
                host.send(&numbered_packet(sent)).unwrap();
                sent += 1;
            }
            assert!(sent <= 8, "{sent} packets for 8 elements");
            !host.link.has_room() && host.link.is_idle() && unit.link.has_packets()
        });
        // Everything sent has arrived, and further turns make no room.
        (0..100).for_each(|_| until(&mut sides, |_| true));
        assert!(!sides[0].link.has_room());
    });
}

#[test]
fn closed_link_is_reported_to_the_peer() {
    for_each_pair(|sides, _| {
        let [mut host, unit] = sides;
        let Side {
            mut carrier, link, ..
        } = unit;
        link.close(&mut *carrier);
        let start = Instant::now();
        while !host.ended && host.lost.is_none() {
            let now = Instant::now();
            carrier.turn(now, &mut Vec::new()).unwrap();
            // A channel that is not acknowledged detects it when it sends.
            let _ = host.send(&numbered_packet(1));
            host.turn();
            host.handle_events();
            assert!(start.elapsed() < PATIENCE, "never heard");
        }
    });
}

/// A host may name any STag; only memory lent to it is accessible.
#[test]
fn peer_cannot_write_memory_of_another_link() {
    for scheme in SCHEMES {
        let mut sides = pair(scheme, Arrangement::Writes, 8);
        let [host, unit] = &mut sides;
        let options = *unit.link.options();
        let other = Link::new(&mut *unit.carrier, options, Instant::now()).unwrap();
        let to = RemoteAddr {
            stag: other.pool.stag(),
            to: other.pool.address(),
        };
        let slot = host.link.packets.fill(b"mine").unwrap();
        let piece = host.link.packets.sge(slot, 0, 4);
        let data = host.link.pair(1).unwrap();
        let posted = host
            .carrier
            .post_write(data, id(PACKET, slot), piece, to, None);
        posted.unwrap();
        until(&mut sides, |[host, _]| host.ended || host.lost.is_some());
        let mut there = [0; 4];
        assert!(other.pool.read(0, &mut there));
        assert_eq!(there, [0; 4], "{scheme}");
        other.close(&mut *sides[1].carrier);
    }
}

#[test]
fn acknowledging_peer_is_not_silent() {
    for scheme in SCHEMES {
        for arrangement in [Arrangement::Writes, Arrangement::Single] {
            let mut sides = pair(scheme, arrangement, 8);
            until(&mut sides, |[host, _]| host.link.is_idle());
            let [host, _] = &mut sides;
            let now = Instant::now();
            let long = host.link.silence(now + Duration::from_secs(5));
            assert!(long >= Duration::from_millis(400), "{long:?}");
            let before = host.link.counters().messages_in;
            host.send(&numbered_packet(1)).unwrap();
            until(&mut sides, |[host, _]| host.link.is_idle());
            let [host, _] = &mut sides;
            // The acknowledgement came after `now`, so that the time until then counts as none.
            assert_eq!(host.link.silence(now), Duration::ZERO, "{scheme}");
            assert_eq!(host.link.counters().messages_in, before, "it said nothing");
        }
    }
}

/// A process that was suspended for a minute has not received for a minute, either.
#[test]
fn own_suspension_is_not_peer_silence() {
    let [mut host, _unit] = pair("udp", Arrangement::Single, 8);
    let mut now = Instant::now();
    host.link.silence(now);
    now += Duration::from_secs(60);
    let silent = host.link.silence(now);
    assert!(silent <= Duration::from_secs(1), "{silent:?}");
    for _ in 0..30 {
        now += Duration::from_millis(100);
        host.link.silence(now);
    }
    let silent = host.link.silence(now);
    assert!(silent >= Duration::from_secs(3), "{silent:?}");
}

/// A packet with a frame that is only an acknowledgement, up to a number.
fn acknowledgement(number: u32) -> Vec<u8> {
    let mut packet = vec![0; VNET_HDR_LEN];
    packet.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    packet.extend([0x45, 0, 0, 40, 0, number as u8, 0x40, 0, 64, 6, 0, 0]);
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 80, 0, 0, 0, 1]);
    packet.extend(number.to_be_bytes());
    packet.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet
}

/// Of acknowledgements sent together only the last one is transmitted, and nothing else is lost or reordered.
#[test]
fn outdated_acknowledgement_is_not_sent() {
    for_each_pair(|mut sides, lossless| {
        let (one, two) = (acknowledgement(1), acknowledgement(2));
        let (three, other) = (acknowledgement(3), numbered_packet(9));
        let room = sides[0].link.free();
        for packet in [&one, &two, &other, &one, &two, &two, &three] {
            sides[0].send(packet).unwrap();
        }
        assert_eq!(sides[0].link.superseded_acks(), 2);
        let mut came = Vec::new();
        until(&mut sides, |[_, unit]| {
            came.extend(unit.packet());
            came.len() == 5 || !lossless
        });
        if lossless {
            // The same number twice reports a gap, also when that is filled at once.
            assert_eq!(came, [two.clone(), other, two.clone(), two, three]);
            until(&mut sides, |[host, _]| host.link.is_idle());
            let used = room - sides[0].link.free();
            assert!(used <= 5, "{used} elements for five packets");
        }
    });
}

/// Once the last element is reserved for a kept acknowledgement, there is no room.
#[test]
fn kept_acknowledgement_reserves_an_element() {
    for_each_pair(|mut sides, _| {
        let elements = sides[0].link.free();
        for at in 1..elements {
            assert!(sides[0].link.has_room());
            sides[0].send(&numbered_packet(at as u32)).unwrap();
        }
        assert!(sides[0].link.has_room());
        sides[0].send(&acknowledgement(1)).unwrap();
        assert!(!sides[0].link.has_room());
    });
}

#[test]
fn hosts_without_the_units_key_are_refused() {
    let plain = Config::from_parts(None, std::iter::empty()).unwrap();
    for config in [encrypted("another key than the unit has"), plain] {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut unit = IwarpCarrier::listen(any, encrypted("the key of the unit")).unwrap();
        let mut host = IwarpCarrier::dial(unit.address().unwrap(), config).unwrap();
        let options = LinkOptions::new(Arrangement::Single, 8, 3000);
        let link = Link::new(&mut host, options, Instant::now()).unwrap();
        host.connect(link.pair(0).unwrap(), b"").unwrap();
        wait_for("a refusal", || {
            for carrier in [&mut host, &mut unit] {
                carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
            }
            assert_eq!(unit.next_event(), None, "the driver is told of nothing");
            match host.next_event()? {
                CarrierEvent::Refused { .. } => Some(()),
                news => panic!("{news:?}"),
            }
        });
    }
}
