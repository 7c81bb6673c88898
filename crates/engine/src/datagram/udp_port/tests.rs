//! Tests that a queue pair that found no room continues when there is some, whichever thread reads the socket, and that port 4791 delivers
//! packets to their handlers and counts all others. Each test with port 4791 has an address of its own.

use core::time::Duration;
use std::net::UdpSocket;

use verbena_nic::qp::Limits;
use verbena_nic::ud::{Destination, UdSendWr};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, QpState, Wc};
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{Deth, Operation, Service, Tail};

use super::*;
use crate::{Config, Engine, UdOptions, UdPair};

/// A queue pair with ten posted sends, as if the socket had had no room for the first.
fn blocked(engine: &Engine, cq: &crate::CompletionQueue) -> UdPair {
    let pd = engine.function().allocate_pd().unwrap();
    let options = UdOptions {
        limits: Limits::default(),
        ..UdOptions::new(pd)
    };
    let ud = engine.create_ud(cq, cq, options).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        ud.modify(state).unwrap();
    }
    let here = engine.addresses().unwrap()[0];
    for id in 0..10 {
        let to = Destination {
            address: here,
            source: here,
            number: ud.number(),
            qkey: 0,
        };
        let wr = UdSendWr {
            id,
            immediate: None,
            flags: Flags::SIGNALED,
            data: Data::Inline(b"later"),
            to,
        };
        ud.post_sends(&[wr]).unwrap();
    }
    // On the `nic` object directly, so that no thread transmits.
    ud.member
        .qp
        .modify(QpState::Rts, &mut Outbox::new())
        .unwrap();
    assert_eq!(ud.view().sends, 10);
    ud
}

#[test]
fn blocked_sends_resume_when_socket_is_writable() {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    let engine = Engine::new(config).unwrap();
    let cq = engine.create_cq(100).unwrap();
    for lent in [false, true] {
        let ud = blocked(&engine, &cq);
        let udp_port = &ud.member.udp_ports[0];
        if lent {
            udp_port.lend();
        }
        udp_port.resume_when_writable(&ud.member);
        udp_port.resume_when_writable(&ud.member);
        let until = sys::now() + Duration::from_secs(10);
        let (mut done, mut count) = ([Wc::default(); 20], 0);
        // The last send leaves its queue before its completion is in the completion queue.
        sys::wait(until, || {
            count += cq.cq().poll(&mut done[count..]);
            count >= 10
        });
        assert_eq!(count, 10, "lent: {lent}");
        assert!(done.iter().take(10).map(|wc| wc.id).eq(0..10));
        assert_eq!(ud.view().sends, 0);
        // The second call is one more entry if the shard was faster.
        sys::wait(until, || udp_port.state.lock().blocked.is_empty());
        assert!(udp_port.state.lock().blocked.is_empty());
        if lent {
            udp_port.take_back();
        }
    }
}

#[test]
fn failed_retry_pauses_then_resumes_blocked_sends() {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    let engine = Engine::new(config).unwrap();
    let cq = engine.create_cq(100).unwrap();
    let ud = blocked(&engine, &cq);
    // In SQD it does not send, as if sends found no room although the socket polls writable.
    ud.member
        .qp
        .modify(QpState::Sqd, &mut Outbox::new())
        .unwrap();
    let udp_port = &ud.member.udp_ports[0];
    udp_port.resume_when_writable(&ud.member);
    let until = sys::now() + Duration::from_secs(10);
    sys::wait(until, || udp_port.state.lock().blocked.is_empty());
    ud.member
        .qp
        .modify(QpState::Rts, &mut Outbox::new())
        .unwrap();
    udp_port.resume_when_writable(&ud.member);
    sys::wait(until, || ud.view().sends == 0);
    assert_eq!(ud.view().counters.sent, 10);
}

/// An engine at an address of this test's own, its port 4791, and a handler for one number.
struct Receiver {
    engine: Engine,
    port: Arc<UdpPort>,
    number: Qpn,
    handler: Arc<Counter>,
    sender: UdpSocket,
}

/// Counts what it gets.
#[derive(Default)]
struct Counter {
    packets: AtomicUsize,
    batches: AtomicUsize,
    resumed: AtomicUsize,
    payload: AtomicUsize,
}

impl PacketHandler for Counter {
    fn handle_packet(
        &self,
        _: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        _: Time,
        _: &mut Outbox,
    ) {
        assert!(local.is_loopback());
        let bytes = packet.payload.len();
        self.payload.fetch_add(bytes, Ordering::SeqCst);
        self.packets.fetch_add(1, Ordering::SeqCst);
    }

    fn end_batch(&self, _: Time, _: &mut Outbox) {
        self.batches.fetch_add(1, Ordering::SeqCst);
    }

    fn resume(&self, _: &mut Outbox) {
        self.resumed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Receiver {
    fn new(address: &str) -> Receiver {
        let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
        config.set("device", address).unwrap();
        let engine = Engine::new(config).unwrap();
        let local = address.parse().unwrap();
        let number = engine
            .core
            .oob
            .qpn_allocator
            .allocate(&engine.core)
            .unwrap();
        let port = engine.core.roce_ports.at(&engine.core, local).unwrap();
        let handler = Arc::new(Counter::default());
        let sender = UdpSocket::bind((local, 0)).unwrap();
        let receiver = Receiver {
            engine,
            port,
            number,
            handler,
            sender,
        };
        receiver.add(number);
        receiver
    }

    fn add(&self, number: Qpn) {
        let handler: Weak<Counter> = Arc::downgrade(&self.handler);
        self.engine.core.routes.roce_demux.add(number, handler);
    }

    /// A packet of the raw socket with a right ICRC.
    fn packet(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.sealed(bytes)
    }

    fn sealed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let path = self.port.path_from(self.sender.local_addr().unwrap());
        let icrc = icrc_over_socket(path, &bytes);
        bytes.extend(icrc);
        bytes
    }

    fn send(&self, bytes: &[u8]) {
        self.sender.send_to(bytes, self.port.addr).unwrap();
    }

    fn packets(&self) -> usize {
        self.handler.packets.load(Ordering::SeqCst)
    }
}

fn send_only(to: Qpn, payload: &[u8]) -> Packet<'_> {
    let operation = Operation::SendOnly(Service::Rc, Tail::Plain);
    Packet {
        payload,
        ..Packet::new(operation, to, Psn::wrapping(7))
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    sys::wait(sys::now() + Duration::from_secs(10), condition);
}

#[test]
fn burst_reaches_the_handler_in_batches() {
    for (ours, theirs) in [("127.93.1.1", "127.93.1.2"), ("::1", "::1")] {
        let receiver = Receiver::new(theirs);
        let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
        config.set("device", ours).unwrap();
        let engine = Engine::new(config).unwrap();
        let sending = if ours == theirs {
            receiver.port.clone()
        } else {
            let local = ours.parse().unwrap();
            engine.core.roce_ports.at(&engine.core, local).unwrap()
        };
        // While it is lent, the shard does not read it.
        receiver.port.lend();
        let mut burst = sending.burst(receiver.port.addr);
        let mut payloads = 0;
        for (number, len) in [1024; 40].into_iter().chain([300, 1024]).enumerate() {
            let payload = vec![number as u8; len];
            let mut bytes = Vec::new();
            send_only(receiver.number, &payload).emit(&mut bytes);
            assert!(burst.put_bytes(&bytes));
            payloads += len;
        }
        assert_eq!(burst.flush(), SendOutcome::Sent);
        wait_for(|| {
            receiver.port.read(1, &mut Outbox::new());
            receiver.packets() == 42
        });
        assert_eq!(receiver.packets(), 42);
        let Counter {
            payload, batches, ..
        } = &*receiver.handler;
        assert_eq!(payload.load(Ordering::SeqCst), payloads);
        let batches = batches.load(Ordering::SeqCst);
        assert!((1..=2).contains(&batches), "{batches} calls for 42 packets");
        receiver.port.take_back();
    }
}

#[test]
fn malformed_packets_are_counted_by_cause() {
    let receiver = Receiver::new("127.93.2.1");
    let good = send_only(receiver.number, b"some payload");
    let bytes = receiver.packet(&good);
    let drops = || receiver.engine.datagram_drops();
    // Too short for a BTH, and for the headers of the operation.
    for len in [0, 1, 11] {
        receiver.send(&bytes[..len]);
    }
    let mut read = receiver.packet(&good);
    read.truncate(12);
    read[0] = 0x0c;
    receiver.send(&receiver.sealed(read));
    // An opcode and a version that do not exist.
    for (at, value) in [(0, 0x1f), (0, 0xc4), (1, 0x41)] {
        let mut wrong = bytes.clone();
        wrong.truncate(bytes.len() - ICRC_LEN);
        wrong[at] = value;
        receiver.send(&receiver.sealed(wrong));
    }
    wait_for(|| drops().malformed == 7);
    assert_eq!(drops().malformed, 7);
    // Any damaged byte that the ICRC covers; the pad count and the address of another queue pair are other causes.
    let covered = [0, 2, 3, 8, 11, 12, bytes.len() - 5, bytes.len() - 1];
    for at in covered {
        let mut wrong = bytes.clone();
        wrong[at] ^= 4;
        receiver.send(&wrong);
    }
    wait_for(|| drops().checksum == covered.len() as u64);
    assert_eq!(drops().checksum, covered.len() as u64);
    receiver.send(&receiver.packet(&Packet {
        pkey: 0x1234,
        ..good
    }));
    let long = vec![0; 4096 + 28];
    receiver.send(&receiver.packet(&send_only(receiver.number, &long)));
    let unknown = Qpn::wrapping(receiver.number.get() ^ 1);
    // Number 1 is the connection manager.
    for number in [unknown, Qpn::wrapping(0), Qpn::wrapping(0xff_ffff)] {
        receiver.send(&receiver.packet(&send_only(number, b"")));
    }
    wait_for(|| drops().no_receiver == 3);
    let expected = crate::DatagramDrops {
        malformed: 7,
        oversized: 1,
        checksum: covered.len() as u64,
        partition: 1,
        no_receiver: 3,
        wrong_source: 0,
    };
    assert_eq!(drops(), expected);
    assert_eq!(receiver.packets(), 0);
    // Still working: limited members of the partition are accepted, too.
    receiver.send(&bytes);
    receiver.send(&receiver.packet(&Packet {
        pkey: 0x7fff,
        ..good
    }));
    wait_for(|| receiver.packets() == 2);
    assert_eq!(receiver.packets(), 2);
    // Nothing was answered.
    receiver.sender.set_nonblocking(true).unwrap();
    assert!(receiver.sender.recv(&mut [0; 100]).is_err());
}

#[test]
fn datagrams_for_queue_pair_one_reach_its_handler() {
    let receiver = Receiver::new("127.93.3.1");
    receiver.add(Qpn::wrapping(MadHeader::QPN));
    let deth = Deth {
        qkey: MadHeader::QKEY,
        src_qpn: Qpn::wrapping(1),
    };
    let mad = Packet {
        payload: &[0; 256],
        ..Packet::new(
            Operation::Datagram(deth, None),
            Qpn::wrapping(MadHeader::QPN),
            Psn::wrapping(0),
        )
    };
    receiver.send(&receiver.packet(&mad));
    // A datagram for a connected queue pair is for no one, and so is one for a number without a handler.
    receiver.send(&receiver.packet(&Packet {
        dest_qpn: receiver.number,
        ..mad
    }));
    wait_for(|| receiver.engine.datagram_drops().no_receiver == 1);
    wait_for(|| receiver.packets() == 1);
    assert_eq!(receiver.packets(), 1);
    receiver
        .engine
        .core
        .routes
        .roce_demux
        .remove(receiver.number);
    receiver.send(&receiver.packet(&send_only(receiver.number, b"")));
    wait_for(|| receiver.engine.datagram_drops().no_receiver == 2);
    assert_eq!(receiver.engine.datagram_drops().no_receiver, 2);
}

#[test]
fn flood_is_read_in_bounded_turns() {
    let receiver = Receiver::new("127.93.4.1");
    receiver.port.lend();
    let bytes = receiver.packet(&send_only(receiver.number, b"flood"));
    for _ in 0..100 {
        receiver.send(&bytes);
    }
    let turns = core::cell::Cell::new(0);
    wait_for(|| {
        let before = receiver.packets();
        receiver.port.read(16, &mut Outbox::new());
        let taken = receiver.packets() - before;
        assert!(taken <= 16, "{taken} packets in one turn");
        turns.set(turns.get() + 1);
        receiver.packets() == 100
    });
    assert_eq!(receiver.packets(), 100);
    assert!(turns.get() >= 7);
    receiver.port.take_back();
}

#[test]
fn blocked_handler_is_resumed_once() {
    let receiver = Receiver::new("127.93.5.1");
    let handler: Arc<dyn PacketHandler> = receiver.handler.clone();
    for round in 1..4 {
        receiver.port.resume_packets_when_writable(&handler);
        wait_for(|| receiver.handler.resumed.load(Ordering::SeqCst) == round);
        assert_eq!(receiver.handler.resumed.load(Ordering::SeqCst), round);
    }
    assert!(receiver.port.state.lock().blocked.is_empty());
}
