//! Peers of RoCEv2 that break the rules, played by the tests: damaged packets, other sources than the connection's, replays and floods at port 4791.
//! Another program that has the port, too. What must not have an effect is followed by something that has one, which shows that it was handled.

use std::net::{IpAddr, UdpSocket};
use std::sync::mpsc;

use verbena_engine::Error;
use verbena_nic::{QpState, Status, Wc};
use verbena_wire::roce::cm::{Apr, CmMessage, Dreq, Lap, Rej, RejReason, Req, Rtu};
use verbena_wire::roce::{ICRC_LEN, Operation, Packet, Path, Psn, Qpn, Service, Tail};

use crate::common::{SEND, Side, TEST_TIMEOUT, pattern};
use crate::roce_cm::{
    Mad, Peer, ROCE_PORT, accept, addresses, cma, connect, host_network, listen, parse, request,
    side_at, wait, wait_disconnected,
};

/// What a scripted peer knows of the connection that it asked for.
struct Connection {
    local_id: u32,
    remote_id: u32,
    qpn: Qpn,
    /// PSN of its next packet.
    psn: u32,
}

/// The peer's request is accepted and confirmed; the receives were posted before.
fn connect_peer(side: &Side, peer: &mut Peer) -> Connection {
    let here = side.engine.addresses().unwrap()[0];
    let (listening, at) = listen(side, here);
    let private = cma(peer.at.ip(), here, b"");
    let req = request(0xa, at, &private);
    peer.send(here, 77, CmMessage::Req(req));
    let accepted = accept(listening.next().unwrap().unwrap(), side, b"");
    let rep = peer.receive();
    let (77, CmMessage::Rep(rep)) = parse(&rep) else {
        panic!("a REP");
    };
    let (local_id, remote_id) = (0xa, rep.local_id);
    let rtu = Rtu {
        local_id,
        remote_id,
        private: &[],
    };
    peer.send(here, 77, CmMessage::Rtu(rtu));
    wait(&accepted).unwrap();
    Connection {
        local_id,
        remote_id,
        qpn: rep.qpn,
        psn: rep.starting_psn.get(),
    }
}

impl Connection {
    fn send<'a>(&self, psn: u32, payload: &'a [u8]) -> Packet<'a> {
        Packet {
            payload,
            ack_request: true,
            ..Packet::new(
                Operation::SendOnly(Service::Rc, Tail::Plain),
                self.qpn,
                Psn::wrapping(psn),
            )
        }
    }

    fn dreq(&self) -> Dreq<'static> {
        Dreq {
            local_id: self.local_id,
            remote_id: self.remote_id,
            remote_qpn: self.qpn,
            private: &[],
        }
    }
}

/// A side whose queue pair takes receives before it is connected.
fn side_with_receives(address: IpAddr, receives: u64) -> Side {
    let side = side_at(address, &[]);
    side.qp.modify(QpState::Init).unwrap();
    for id in 1..=receives {
        side.receive(id, &[side.sge(id as usize * 64, 64)]);
    }
    side
}

#[test]
fn damaged_packet_has_no_effect() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_with_receives(here, 1), Peer::new(there));
    let connection = connect_peer(&b, &mut peer);
    let mut bytes = Vec::new();
    connection.send(connection.psn, b"bad").emit(&mut bytes);
    let path = Path {
        src: there,
        dst: here,
        src_port: ROCE_PORT,
        dst_port: ROCE_PORT,
    };
    let mut icrc = verbena_wire::roce::icrc_over_socket(path, &bytes);
    assert_eq!(icrc.len(), ICRC_LEN);
    icrc[1] ^= 0x10;
    bytes.extend_from_slice(&icrc);
    peer.socket.send_to(&bytes, (here, ROCE_PORT)).unwrap();
    // The same place in the sequence.
    peer.send_packet(here, &connection.send(connection.psn, b"good"));
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    assert_eq!(b.memory.read(64, 4), b"good");
    assert_eq!(b.engine.datagram_drops().checksum, 1);
}

#[test]
fn established_connection_ignores_other_sources() {
    let [here, there, elsewhere] = addresses();
    let b = side_with_receives(here, 2);
    let (mut peer, spoofer) = (Peer::new(there), Peer::new(elsewhere));
    let connection = connect_peer(&b, &mut peer);
    for round in 0..2 {
        let psn = connection.psn + round;
        spoofer.send_packet(here, &connection.send(psn, b"spoofed"));
        // One that would fail the queue pair.
        let unexpected = Packet {
            operation: Operation::SendMiddle(Service::Rc),
            ..connection.send(psn, &[7; 1024])
        };
        spoofer.send_packet(here, &unexpected);
        peer.send_packet(here, &connection.send(psn, b"from the peer"));
        let id = u64::from(round) + 1;
        assert_eq!(b.statuses(1), [(id, Status::Success)]);
        assert_eq!(b.memory.read(id as usize * 64, 13), b"from the peer");
    }
    assert_eq!(b.engine.datagram_drops().wrong_source, 4);
    // It got no answer, neither.
    spoofer.socket.set_nonblocking(true).unwrap();
    assert!(spoofer.socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn replayed_request_of_an_ended_connection_is_not_shown() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_with_receives(here, 0), Peer::new(there));
    let connection = connect_peer(&b, &mut peer);
    let (listening, at) = listen(&b, here);
    peer.send(here, 78, CmMessage::Dreq(connection.dreq()));
    while !matches!(parse(&peer.receive()), (78, CmMessage::Drep(_))) {}
    wait_disconnected(&b);
    let private = cma(there, here, b"");
    for _ in 0..4 {
        let req = request(connection.local_id, at, &private);
        peer.send(here, 77, CmMessage::Req(req));
    }
    // Only the new one is shown.
    let new = Req {
        starting_psn: Psn::wrapping(1),
        ..request(0xc, at, &private)
    };
    peer.send(here, 79, CmMessage::Req(new));
    listening.next().unwrap().unwrap().reject(b"");
    assert!(listening.try_next().unwrap().is_none());
    let is_rejection = |mad: &Mad| {
        matches!(
            parse(mad),
            (79, CmMessage::Rej(rej)) if (rej.remote_id, rej.reason) == (0xc, RejReason::CONSUMER)
        )
    };
    while !is_rejection(&peer.receive()) {}
    // The end does not fail the queue pair, and a late packet does not, either.
    peer.send_packet(here, &connection.send(connection.psn, b"late"));
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn alternate_path_is_answered_as_unsupported() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_with_receives(here, 1), Peer::new(there));
    let connection = connect_peer(&b, &mut peer);
    // Of the connection, and of none.
    for remote_id in [connection.remote_id, connection.remote_id ^ 1] {
        let lap = Lap {
            local_id: connection.local_id,
            remote_id,
            remote_qpn: connection.qpn,
            path: [7; 44],
            private: &[],
        };
        peer.send(here, 90, CmMessage::Lap(lap));
        let apr = peer.receive();
        let (90, CmMessage::Apr(apr)) = parse(&apr) else {
            panic!("an APR");
        };
        assert_eq!(
            (apr.local_id, apr.remote_id, apr.status),
            (remote_id, connection.local_id, Apr::UNSUPPORTED)
        );
    }
    // The connection goes on by its only path.
    peer.send_packet(here, &connection.send(connection.psn, b"still here"));
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn flood_neither_grows_memory_nor_ends_a_connection() {
    verbena_testing::own_process!();
    const ROUNDS: u32 = 40;
    const PACKETS: u32 = 500;
    const BOUND: usize = 8 << 20;
    let [here, there, elsewhere] = [1, 2, 3].map(|n| [127, 3, 1, n].into());
    let b = side_with_receives(here, ROUNDS.into());
    let (mut peer, mut flooder) = (Peer::new(there), Peer::new(elsewhere));
    let connection = connect_peer(&b, &mut peer);
    let (_listening, at) = listen(&b, here);
    let bytes = pattern(1000, 7);
    let private = cma(elsewhere, here, b"");
    let mut usual = 0;
    for round in 0..ROUNDS {
        for n in round * PACKETS..(round + 1) * PACKETS {
            flooder.send_packet(here, &connection.send(n, &bytes));
            // Each number as if it were that of another process.
            let elsewhere = Packet {
                dest_qpn: Qpn::wrapping(0x50_0000 + n * 97),
                ..connection.send(n, &bytes)
            };
            flooder.send_packet(here, &elsewhere);
            flooder.socket.send_to(&bytes, (here, ROCE_PORT)).unwrap();
            let req = request(n + 1, at, &private);
            flooder.send(here, n.into(), CmMessage::Req(req));
            let dreq = Dreq {
                local_id: n,
                remote_id: n * 7 + 1,
                ..connection.dreq()
            };
            flooder.send(here, n.into(), CmMessage::Dreq(dreq));
            // It withdraws a part of its requests, which makes room for more.
            if n % 2 == 0 {
                let rej = Rej {
                    local_id: n + 1,
                    remote_id: 0,
                    message: 0,
                    reason: RejReason::TIMEOUT,
                    info: &[],
                    private: &[],
                };
                flooder.send(here, n.into(), CmMessage::Rej(rej));
            }
        }
        // What the socket has no room for is lost, as on the wire.
        let (psn, id) = (connection.psn + round, u64::from(round) + 1);
        let done = verbena_testing::wait_for("the message of the peer", || {
            peer.send_packet(here, &connection.send(psn, b"from the peer"));
            let mut wc = [Wc::default()];
            (b.cq.poll(&mut wc) == 1).then(|| wc[0])
        });
        assert_eq!((done.id, done.status), (id, Status::Success));
        assert_eq!(b.memory.read(id as usize * 64, 13), b"from the peer");
        if round == ROUNDS / 4 {
            usual = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(usual);
    assert!(grown < BOUND, "{grown} bytes more");
    let drops = b.engine.datagram_drops();
    assert!(drops.wrong_source > 0 && drops.no_receiver > 0, "{drops:?}");
}

/// The sentence is reported once, the listener goes on with TCP, and what needs RoCEv2 fails with the same sentence.
#[test]
fn listener_goes_on_with_tcp_if_another_program_has_the_port() {
    let [here, there, adapter] = addresses();
    let _taken = UdpSocket::bind((here, ROCE_PORT)).unwrap();
    let peers = format!("{}=roce", host_network(adapter));
    let devices = [here, there].map(|address| address.to_string());
    let b = Side::new(&[("device", devices[0].as_str()), ("peers", peers.as_str())]);
    let (to, sentences) = mpsc::channel();
    b.engine
        .on_roce_unavailable(move |sentence| to.send(sentence.to_owned()).unwrap());
    for _ in 0..2 {
        drop(listen(&b, here));
    }
    let sentence = sentences.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(
        sentence.starts_with(&format!("UDP port 4791 at {here} is in use")),
        "{sentence}"
    );
    let a = Side::new(&[("device", devices[1].as_str())]);
    let (listening, at) = listen(&b, here);
    let answer = connect(&a, at, b"hello");
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"welcome");
    assert_eq!(wait(&answer).unwrap(), b"welcome");
    assert_eq!(wait(&accepted).unwrap(), b"hello");
    b.receive(1, &[b.sge(0, 8)]);
    a.post(2, SEND, &[a.sge(0, 8)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    // Towards the adapter there is no other way.
    let c = crate::common::make_qp(&b.engine, &b.cq, b.pd);
    let error = c.connect((adapter, 7174).into(), b"", |_| ()).unwrap_err();
    assert!(matches!(error, Error::RocePortInUse { address } if address == here));
    assert_eq!(error.to_string(), sentence);
    assert!(sentences.try_recv().is_err(), "it is reported once");
}
