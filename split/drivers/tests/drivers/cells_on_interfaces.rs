//! Carriers of cells between two network namespaces: Ethernet frames, UDP packets, and a slow path.

use std::time::{Duration, Instant};

use verbena_lan::{Interface, Mac};
use verbena_nic::wc::{Status, Wc, WcOp};
use verbena_nic::wr::RemoteAddr;
use verbena_split::carrier::cells::{CellCarrier, CellOptions, ETHERTYPE};
use verbena_split::carrier::{Carrier, CarrierEvent, Memory, MemoryAccess, Pair, PairOptions};
use verbena_wire::To;

use crate::space::{Netns, privileged};

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 1 << 16;
const SLOTS: usize = 8;

struct Side {
    carrier: CellCarrier,
    memory: Box<dyn Memory>,
    done: Vec<Wc>,
    events: Vec<CarrierEvent>,
    was_full: bool,
}

impl Side {
    fn new(mut carrier: CellCarrier) -> Side {
        let memory = carrier
            .register_memory(2 * SLOTS * LEN, MemoryAccess::RemoteWrite)
            .unwrap();
        Side {
            carrier,
            memory,
            done: Vec::new(),
            events: Vec::new(),
            was_full: false,
        }
    }

    fn turn(&mut self) {
        self.carrier.turn(Instant::now(), &mut self.done).unwrap();
        while let Some(news) = self.carrier.next_event() {
            self.events.push(news);
        }
        let mut on = Vec::new();
        self.carrier.wait_fds(&mut on);
        self.was_full |= on.iter().any(|sleeper| sleeper.write);
    }

    fn pair(&mut self, acknowledged: bool) -> Pair {
        let options = PairOptions {
            acknowledged,
            sends: 16,
            receives: 16,
        };
        let pair = self.carrier.create_pair(options).unwrap();
        for id in 0..SLOTS {
            self.receive(pair, id);
        }
        pair
    }

    fn receive(&mut self, pair: Pair, id: usize) {
        let piece = self.memory.sge(id * LEN, LEN as u32);
        self.carrier
            .post_receive(pair, id as u64, Some(piece))
            .unwrap();
    }
}

fn until(
    unit: &mut Side,
    host: &mut Side,
    what: &str,
    mut so: impl FnMut(&mut Side, &mut Side) -> bool,
) {
    let start = Instant::now();
    loop {
        unit.turn();
        host.turn();
        if so(unit, host) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        if unit.carrier.prepare_sleep() && host.carrier.prepare_sleep() {
            host.carrier
                .sleep(&mut [], Some(Duration::from_millis(1)))
                .unwrap();
        }
    }
}

/// Connects a pair; returns the unit's and the host's.
fn connect_pair(unit: &mut Side, host: &mut Side, acknowledged: bool) -> (Pair, Pair) {
    let pair = host.pair(acknowledged);
    host.carrier.connect(pair, b"hello").unwrap();
    until(unit, host, "a request", |unit, _| !unit.events.is_empty());
    let Some(CarrierEvent::Request { ticket, .. }) = unit.events.pop() else {
        panic!("a request")
    };
    let served = unit.pair(acknowledged);
    unit.carrier.accept(ticket, served, b"").unwrap();
    until(unit, host, "connected", |unit, host| {
        !unit.events.is_empty() && !host.events.is_empty()
    });
    for side in [unit, host] {
        let news = std::mem::take(&mut side.events);
        assert!(
            matches!(news[..], [CarrierEvent::Connected { .. }]),
            "{news:?}"
        );
    }
    (served, pair)
}

/// Messages of all lengths on both kinds of pairs, a write, and the end.
fn exercise(unit: &mut Side, host: &mut Side) {
    for acknowledged in [true, false] {
        let (served, pair) = connect_pair(unit, host, acknowledged);
        for len in [0, 1, 46, 1400, 1500, 5000, LEN] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 3 + at / 256 + 1) as u8).collect();
            let own = SLOTS * LEN;
            assert!(host.memory.write(own, &bytes));
            let piece = host.memory.sge(own, len as u32);
            host.carrier.post_send(pair, 77, piece).unwrap();
            let to = RemoteAddr {
                stag: unit.memory.stag(),
                to: To::new(unit.memory.address().get() + own as u64),
            };
            host.carrier
                .post_write(pair, 78, piece, to, Some(len as u32))
                .unwrap();
            until(unit, host, "both", |unit, host| {
                unit.done.len() == 2 && host.done.len() == 2
            });
            let [sent, written] = unit.done[..] else {
                unreachable!()
            };
            unit.done.clear();
            assert_eq!((sent.op, sent.len as usize), (WcOp::Receive, len));
            assert_eq!(
                (written.op, written.immediate),
                (WcOp::ReceiveWriteImm, Some(len as u32))
            );
            for at in [sent.id as usize * LEN, own] {
                let mut got = vec![0; len];
                assert!(
                    unit.memory.read(at, &mut got) && got == bytes,
                    "{len} bytes"
                );
            }
            for wc in [sent, written] {
                unit.receive(served, wc.id as usize);
            }
            let done = std::mem::take(&mut host.done);
            assert!(done.iter().all(|wc| wc.status == Status::Success));
        }
        host.carrier.destroy(pair);
        until(unit, host, "the end", |unit, _| !unit.events.is_empty());
        let news = std::mem::take(&mut unit.events);
        assert!(
            matches!(news[..], [CarrierEvent::Ended { pair, .. }] if pair == served),
            "{news:?}"
        );
        unit.carrier.destroy(served);
        unit.done.clear();
    }
}

#[test]
fn cells_pass_in_ethernet_frames() {
    privileged("cells_on_interfaces::cells_pass_in_ethernet_frames", || {
        let (here, there) = (Netns::new(), Netns::new());
        here.connect_veth("host0", &there, "unit0");
        let options = CellOptions::default();
        let mac = there.run(|| Interface::named("unit0").unwrap().mac().unwrap());
        let unit = there.run(|| CellCarrier::ethernet_listen("unit0", options).unwrap());
        let host = here.run(|| CellCarrier::ethernet_dial("host0", mac, options).unwrap());
        assert_eq!(unit.local_addr(), mac.to_string());
        // One full cell per frame of 1500 bytes, with two for the length.
        assert_eq!(host.cell(), 1500 - 2 - 60);
        let (mut unit, mut host) = (Side::new(unit), Side::new(host));
        exercise(&mut unit, &mut host);
        assert_eq!(unit.carrier.counters().dropped, 0);
        strange_frames(&here, mac, &mut unit);
        exercise(&mut unit, &mut host);
    });
}

/// Frames of our type to other stations, broadcast, too short and with garbage have no effect.
fn strange_frames(here: &Netns, mac: Mac, unit: &mut Side) {
    let port = here.run(|| verbena_lan::Port::open("host0", false).unwrap());
    let other = Mac::local(99);
    let mut sent = 0;
    for (to, fill) in [(mac, 0xff), (mac, 0), (other, 0), (Mac::BROADCAST, 0)] {
        for len in [60, 1514] {
            let mut frame = vec![fill; len];
            frame[..6].copy_from_slice(&to.octets());
            frame[6..12].copy_from_slice(&other.octets());
            frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
            assert_eq!(
                port.write_frame(&verbena_lan::Vnet::default(), &frame)
                    .unwrap(),
                verbena_lan::WriteOutcome::Sent
            );
            sent += 1;
        }
    }
    let start = Instant::now();
    // Frames whose length field is 0 are ignored; the others are counted.
    while unit.carrier.counters().dropped < sent - 2 {
        unit.turn();
        assert!(start.elapsed() < PATIENCE, "{:?}", unit.carrier.counters());
    }
    assert!(unit.events.is_empty() && unit.done.is_empty());
}

fn ip_spaces(more: &str) -> (Netns, Netns) {
    let (here, there) = (Netns::new(), Netns::new());
    here.connect_veth("host0", &there, "unit0");
    here.command("ip addr add 10.9.0.1/24 dev host0");
    there.command("ip addr add 10.9.0.2/24 dev unit0");
    if !more.is_empty() {
        here.command(more);
    }
    (here, there)
}

fn udp_sides(here: &Netns, there: &Netns, options: CellOptions) -> (Side, Side) {
    let place = "10.9.0.2:46000".parse().unwrap();
    let unit = there.run(|| CellCarrier::udp_listen(place, options).unwrap());
    let host = here.run(|| CellCarrier::udp_dial(place, options).unwrap());
    (Side::new(unit), Side::new(host))
}

#[test]
fn cells_pass_in_udp_packets() {
    privileged("cells_on_interfaces::cells_pass_in_udp_packets", || {
        let (here, there) = ip_spaces("");
        let (mut unit, mut host) = udp_sides(&here, &there, CellOptions::default());
        // One full cell per packet of 1500 bytes.
        assert_eq!(host.carrier.cell(), 1500 - 28 - 60);
        exercise(&mut unit, &mut host);
        let apart = CellOptions {
            gso: false,
            ..CellOptions::default()
        };
        drop((unit, host));
        let (mut unit, mut host) = udp_sides(&here, &there, apart);
        exercise(&mut unit, &mut host);
    });
}

/// When the socket's buffer is full, waiting datagrams are sent later, in order and once.
#[test]
fn full_socket_buffer_delays_datagrams_in_order() {
    privileged(
        "cells_on_interfaces::full_socket_buffer_delays_datagrams_in_order",
        || {
            let slow = "tc qdisc add dev host0 root tbf rate 200mbit burst 70000 limit 10000000";
            let (here, there) = ip_spaces(slow);
            for joins in [true, false] {
                let options = CellOptions {
                    send_buffer: 1,
                    gso: joins,
                    ..CellOptions::default()
                };
                let (mut unit, mut host) = udp_sides(&here, &there, options);
                let (served, pair) = connect_pair(&mut unit, &mut host, true);
                let (mut posted, mut came) = (0, 0);
                until(&mut unit, &mut host, "all messages", |unit, host| {
                    while posted < 60 && posted < host.done.len() + SLOTS {
                        let at = (SLOTS + posted % SLOTS) * LEN;
                        assert!(host.memory.write(at, &vec![posted as u8; LEN]));
                        let piece = host.memory.sge(at, LEN as u32);
                        host.carrier.post_send(pair, posted as u64, piece).unwrap();
                        posted += 1;
                    }
                    for wc in std::mem::take(&mut unit.done) {
                        let mut got = vec![0; LEN];
                        assert!(unit.memory.read(wc.id as usize * LEN, &mut got));
                        assert!(got == vec![came as u8; LEN], "message {came}");
                        came += 1;
                        unit.receive(served, wc.id as usize);
                    }
                    came == 60 && host.done.len() == 60
                });
                let mut order = host.done.iter().enumerate();
                assert!(order.all(|(n, wc)| wc.id == n as u64));
                assert!(host.was_full, "joined: {joins}: the way was never full");
            }
        },
    );
}
