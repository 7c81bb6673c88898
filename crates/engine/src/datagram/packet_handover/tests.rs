//! Tests of the handover: records, and packets for the number or service of another engine that shares the port.

use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{Operation, PORT, Packet, Path, Service, Tail, icrc_over_socket};

use super::*;
use crate::datagram::roce_demux::PacketHandler;
use crate::sys::Arrival;
use crate::{Config, Engine};

/// Counts what it gets.
#[derive(Default)]
struct Counter {
    packets: AtomicU64,
    ended: AtomicU64,
    from: Mutex<Vec<SocketAddr>>,
}

impl PacketHandler for Counter {
    fn handle_packet(&self, from: SocketAddr, _: IpAddr, _: &Packet<'_>, _: Time, _: &mut Outbox) {
        self.packets.fetch_add(1, Ordering::SeqCst);
        self.from.lock().push(from);
    }

    fn end_batch(&self, _: Time, _: &mut Outbox) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn resume(&self, _: &mut Outbox) {}
}

/// An engine at an address of this test's own.
fn engine(address: &str) -> Engine {
    engine_with(&[("device", address)])
}

fn engine_with(settings: &[(&str, &str)]) -> Engine {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Engine::new(config).unwrap()
}

/// A Send of one packet with a right ICRC.
fn packet(to: Qpn, from: SocketAddr, local: IpAddr) -> Vec<u8> {
    let operation = Operation::SendOnly(Service::Rc, Tail::Plain);
    let packet = Packet {
        payload: b"payload!",
        ..Packet::new(operation, to, Psn::wrapping(1))
    };
    let path = Path {
        src: from.ip(),
        dst: local,
        src_port: from.port(),
        dst_port: PORT,
    };
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    let icrc = icrc_over_socket(path, &bytes);
    bytes.extend(icrc);
    bytes
}

#[test]
fn records_carry_the_source() {
    for from in ["10.1.2.3:4791", "[fd00::1]:49152"] {
        let from: SocketAddr = from.parse().unwrap();
        let record = [&head(from)[..], b"bytes"].concat();
        assert_eq!(parse(&record), Some((from, &b"bytes"[..])));
        assert_eq!(parse(&record[..HEAD - 1]), None);
    }
}

#[test]
fn packet_reaches_the_engine_that_has_its_number() {
    let (a, b) = (engine("127.92.1.1"), engine("127.92.1.1"));
    let local = "127.92.1.1".parse().unwrap();
    let number = b.core.oob.qpn_allocator.allocate(&b.core).unwrap();
    let handler = Arc::new(Counter::default());
    let weak: std::sync::Weak<Counter> = Arc::downgrade(&handler);
    b.core.routes.roce_demux.add(number, weak);
    a.core.roce_ports.at(&a.core, local).unwrap();
    b.core.roce_ports.at(&b.core, local).unwrap();
    let from: SocketAddr = "10.9.8.7:4791".parse().unwrap();
    let handover = &a.core.roce_ports.handover;
    let claim = Claim::Port((number.get() >> 8) as u16);
    for _ in 0..10 {
        assert!(handover.hand_over(local, claim, from, &packet(number, from, local)));
    }
    let until = sys::now() + Duration::from_secs(10);
    sys::wait(until, || handler.packets.load(Ordering::SeqCst) == 10);
    assert_eq!(handler.packets.load(Ordering::SeqCst), 10);
    assert!(handler.from.lock().iter().all(|source| *source == from));
    sys::wait(until, || handler.ended.load(Ordering::SeqCst) > 0);
    assert_eq!(
        (a.packet_handovers().sent, b.packet_handovers().received),
        (10, 10)
    );
    // One with a wrong ICRC is dropped there, and so is one for a number that the other engine does not have.
    let mut bad = packet(number, from, local);
    bad[14] ^= 1;
    assert!(handover.hand_over(local, claim, from, &bad));
    let unknown = Qpn::wrapping(number.get() ^ 1);
    assert!(handover.hand_over(local, claim, from, &packet(unknown, from, local)));
    sys::wait(until, || b.datagram_drops().no_receiver == 1);
    let drops = b.datagram_drops();
    assert_eq!((drops.checksum, drops.no_receiver), (1, 1));
    assert_eq!(handler.packets.load(Ordering::SeqCst), 10);
}

#[test]
fn packets_without_an_owner_are_not_handed_over() {
    let a = engine("127.92.2.1");
    let local = "127.92.2.1".parse().unwrap();
    let port = a.core.roce_ports.at(&a.core, local).unwrap();
    let from = "10.9.8.7:4791".parse().unwrap();
    let handover = &a.core.roce_ports.handover;
    let service = Claim::Service(0x0106_1234);
    assert!(!handover.hand_over(local, service, from, b"x"));
    handover.claim(&a.core, &port, service).unwrap();
    assert!(!handover.hand_over(local, service, from, b"x"), "its own");
    let b = engine("127.92.2.1");
    let other = &b.core.roce_ports.handover;
    assert!(other.hand_over(local, service, from, b"x"));
    handover.release(local, service);
    // The channel that exists still works; a new process does not find the service.
    let c = engine("127.92.2.1");
    let handover = &c.core.roce_ports.handover;
    assert!(!handover.hand_over(local, service, from, b"x"));
    assert_eq!(c.packet_handovers(), PacketHandovers::default());
}

#[test]
fn packet_of_a_refused_source_reaches_its_owner() {
    let refusing = engine_with(&[("device", "127.92.3.1"), ("deny", "10.9.8.0/24")]);
    let owner = engine("127.92.3.1");
    let local = "127.92.3.1".parse().unwrap();
    let number = owner.core.oob.qpn_allocator.allocate(&owner.core).unwrap();
    let own = refusing
        .core
        .oob
        .qpn_allocator
        .allocate(&refusing.core)
        .unwrap();
    let handler = Arc::new(Counter::default());
    let weak: std::sync::Weak<Counter> = Arc::downgrade(&handler);
    owner.core.routes.roce_demux.add(number, weak);
    let port = refusing.core.roce_ports.at(&refusing.core, local).unwrap();
    owner.core.roce_ports.at(&owner.core, local).unwrap();
    let from: SocketAddr = "10.9.8.7:4791".parse().unwrap();
    for to in [number, own] {
        let bytes = &packet(to, from, local)[..];
        let arrival = Arrival {
            bytes,
            from,
            truncated: false,
            number: 0,
        };
        let mut out = Outbox::new();
        port.handed_over().process(&arrival, &mut out);
        refusing.core.deliver(&mut out);
    }
    let until = sys::now() + Duration::from_secs(10);
    sys::wait(until, || handler.packets.load(Ordering::SeqCst) == 1);
    assert_eq!(handler.packets.load(Ordering::SeqCst), 1);
    assert_eq!(refusing.access_list().refused(), 1, "its own packet");
}
