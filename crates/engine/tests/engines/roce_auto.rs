//! `wire = auto` for queue pairs connected by number: adapters, which the tests play, are reached over RoCEv2 although they answer no call over TCP,
//! and two queue pairs of this adapter stay with TCP.

use std::net::{IpAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use verbena_engine::OobPeer;
use verbena_nic::qp::Psns;
use verbena_nic::{QpState, SendOp, Status, Wc};
use verbena_testing::wait_for;
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{Aeth, Operation, Packet, Service, Syndrome, Tail};

use crate::common::{SEND, Side, TEST_TIMEOUT, callable_side, exchange, pattern};
use crate::roce_cm::{Peer, ROCE_PORT, addresses};

/// A number as adapters give them to their first queue pairs: its upper bits are no port that could be called.
const LOW: Qpn = Qpn::wrapping(0x11);
/// One that could be a port of this adapter; nothing listens there.
const HIGH: Qpn = Qpn::wrapping(0xe8_0107);
/// First PSNs: ours, and the peer's.
const OURS: u32 = 0x12_3456;
const THEIRS: u32 = 0xff_ffff;

fn side_at(address: IpAddr, settings: &[(&str, &str)]) -> Side {
    let device = address.to_string();
    let mut all = vec![("device", device.as_str())];
    all.extend_from_slice(settings);
    callable_side(&all)
}

fn local(side: &Side) -> IpAddr {
    side.engine.addresses().unwrap()[0]
}

/// Names the peer and its first PSN, as a program does, and moves the queue pair to `Rts`.
fn set_peer(side: &Side, (address, number): (IpAddr, Qpn), (send, receive): (u32, u32)) {
    side.qp.modify(QpState::Init).unwrap();
    let psns = Psns {
        send: Psn::wrapping(send),
        receive: Psn::wrapping(receive),
    };
    side.qp.set_attr(|attr| attr.psns = Some(psns));
    let peer = OobPeer {
        local: local(side),
        address,
        number,
    };
    side.qp.set_peer(peer).unwrap();
    side.qp.modify(QpState::Rts).unwrap();
}

fn endpoint(side: &Side) -> (IpAddr, Qpn) {
    (local(side), side.qp.oob_qpn().unwrap())
}

fn is_over_roce(side: &Side) -> bool {
    side.qp
        .peer_addr()
        .is_some_and(|peer| peer.port() == ROCE_PORT)
}

/// An adapter's queue pair.
struct Adapter {
    peer: Peer,
    number: Qpn,
    /// The queue pair under test.
    to: (IpAddr, Qpn),
}

impl Adapter {
    /// One with this number, and the queue pair that is to be connected with it.
    fn new(number: Qpn) -> (Side, Adapter) {
        let [here, there] = addresses();
        let (side, peer) = (side_at(here, &[]), Peer::new(there));
        let to = endpoint(&side);
        (side, Adapter { peer, number, to })
    }

    fn endpoint(&self) -> (IpAddr, Qpn) {
        (self.peer.at.ip(), self.number)
    }

    fn send(&self, psn: u32, payload: &[u8]) {
        let packet = Packet {
            payload,
            ack_request: true,
            ..Packet::new(
                Operation::SendOnly(Service::Rc, Tail::Plain),
                self.to.1,
                Psn::wrapping(psn),
            )
        };
        self.peer.send_packet(self.to.0, &packet);
    }

    /// Acknowledges all packets up to this one.
    fn acknowledge(&self, psn: u32, msn: u32) {
        let aeth = Aeth {
            syndrome: Syndrome::ACK,
            msn,
        };
        let packet = Packet::new(Operation::Acknowledge(aeth), self.to.1, Psn::wrapping(psn));
        self.peer.send_packet(self.to.0, &packet);
    }

    /// Waits for a request of the queue pair under test: its PSN and payload.
    fn receive(&self) -> (u32, Vec<u8>) {
        let mut bytes = [0; 8192];
        loop {
            let (len, from) = self.peer.socket.recv_from(&mut bytes).unwrap();
            assert_eq!(from.ip(), self.to.0);
            let (packet, _) = Packet::parse(&bytes[..len]).unwrap();
            assert_eq!(packet.dest_qpn, self.number);
            if let Operation::SendOnly(Service::Rc, _) = packet.operation {
                return (packet.psn.get(), packet.payload.to_vec());
            }
        }
    }
}

/// A message each way, the first one of the side under test.
fn exchange_with(side: &Side, adapter: &Adapter) {
    assert!(side.memory.write(0, b"over RoCEv2"));
    side.post(7, SEND, &[side.sge(0, 11)]);
    assert_eq!(adapter.receive(), (OURS, b"over RoCEv2".to_vec()));
    adapter.acknowledge(OURS, 1);
    assert_eq!(side.statuses(1), [(7, Status::Success)]);
    side.receive(8, &[side.sge(64, 64)]);
    adapter.send(THEIRS, b"an answer");
    assert_eq!(side.statuses(1), [(8, Status::Success)]);
    assert_eq!(side.memory.read(64, 9), b"an answer");
    assert!(is_over_roce(side));
}

#[test]
fn adapter_with_a_low_number_is_reached() {
    let (side, adapter) = Adapter::new(LOW);
    set_peer(&side, adapter.endpoint(), (OURS, THEIRS));
    exchange_with(&side, &adapter);
}

#[test]
fn adapter_with_a_high_number_is_reached_after_refusals() {
    let (side, adapter) = Adapter::new(HIGH);
    set_peer(&side, adapter.endpoint(), (OURS, THEIRS));
    exchange_with(&side, &adapter);
}

/// Until then the queue pair listens on both wires: a packet that is not the first one of the peer chooses nothing.
#[test]
fn first_packet_of_an_adapter_chooses_the_wire() {
    for number in [LOW, HIGH] {
        let (side, adapter) = Adapter::new(number);
        let [elsewhere] = addresses();
        let spoofer = Adapter {
            peer: Peer::new(elsewhere),
            number,
            to: adapter.to,
        };
        set_peer(&side, adapter.endpoint(), (OURS, THEIRS));
        side.receive(8, &[side.sge(64, 64)]);
        // It listens when it counts packets of other sources.
        wait_for("it listens", || {
            spoofer.send(THEIRS, b"spoofed");
            (side.engine.datagram_drops().wrong_source > 0).then_some(())
        });
        adapter.send(THEIRS.wrapping_add(9), b"out of order");
        adapter.acknowledge(OURS, 1);
        assert!(!is_over_roce(&side));
        adapter.send(THEIRS, b"the first");
        assert_eq!(side.statuses(1), [(8, Status::Success)]);
        assert_eq!(side.memory.read(64, 9), b"the first");
        assert!(is_over_roce(&side));
        // The queue pair can be used again.
        side.qp.modify(QpState::Reset).unwrap();
        assert!(!is_over_roce(&side));
        set_peer(&side, adapter.endpoint(), (OURS, THEIRS));
        exchange_with(&side, &adapter);
    }
}

/// The one with `wire = roce` stands for an adapter: it tells a caller at once.
#[test]
fn peer_with_the_setting_roce_is_reached() {
    for first in [0, 1] {
        let [here, there] = addresses();
        let a = side_at(here, &[]);
        let b = side_at(there, &[("wire", "roce")]);
        let sides = [(&a, endpoint(&b), (5, 9)), (&b, endpoint(&a), (9, 5))];
        for at in [first, 1 - first] {
            let (side, peer, psns) = sides[at];
            set_peer(side, peer, psns);
        }
        let bytes = pattern(100_000, 3);
        assert!(b.memory.write(0, &bytes));
        // The adapter need not send first.
        let read = SendOp::Read {
            remote: b.remote(0),
            local_invalidate: None,
        };
        a.post(3, read, &[a.sge(1 << 20, bytes.len())]);
        assert_eq!(a.statuses(1), [(3, Status::Success)]);
        assert_eq!(a.memory.read(1 << 20, bytes.len()), bytes);
        exchange(&a, &b);
        assert!(is_over_roce(&a) && is_over_roce(&b));
    }
}

#[test]
fn queue_pairs_of_this_adapter_stay_with_tcp() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    set_peer(&a, endpoint(&b), (5, 9));
    set_peer(&b, endpoint(&a), (9, 5));
    exchange(&a, &b);
    assert!(!is_over_roce(&a) && !is_over_roce(&b));
    // Nothing was opened for RoCEv2.
    for address in [here, there] {
        UdpSocket::bind((address, ROCE_PORT)).unwrap();
    }
}

#[test]
fn settings_that_roce_cannot_keep_prevent_it() {
    let [here, there] = addresses();
    let peer = Peer::new(there);
    for settings in [
        &[("key", "a secret of 16 bytes")][..],
        &[("key", "a secret of 16 bytes"), ("tls", "psk")],
        &[("wire", "tcp")],
    ] {
        let side = side_at(here, settings);
        side.qp
            .set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(300)));
        set_peer(&side, (there, LOW), (OURS, THEIRS));
        side.post(1, SEND, &[side.sge(0, 8)]);
        assert_eq!(side.statuses(1), [(1, Status::RetryExcErr)]);
    }
    peer.socket.set_nonblocking(true).unwrap();
    assert!(peer.socket.recv(&mut [0; 64]).is_err());
    UdpSocket::bind((here, ROCE_PORT)).unwrap();
}

#[test]
fn port_of_another_program_is_reported_and_the_peer_awaited() {
    let [here, there] = addresses();
    let _taken = UdpSocket::bind((here, ROCE_PORT)).unwrap();
    let _peer = Peer::new(there);
    let side = side_at(here, &[]);
    let (to, sentences) = mpsc::channel();
    side.engine
        .on_roce_unavailable(move |sentence| to.send(sentence.to_owned()).unwrap());
    side.qp
        .set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(300)));
    set_peer(&side, (there, LOW), (OURS, THEIRS));
    let sentence = sentences.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(sentence.contains("4791"), "{sentence}");
    side.post(1, SEND, &[side.sge(0, 8)]);
    assert_eq!(side.statuses(1), [(1, Status::RetryExcErr)]);
    let mut none = [Wc::default()];
    assert_eq!(side.cq.poll(&mut none), 0);
}
