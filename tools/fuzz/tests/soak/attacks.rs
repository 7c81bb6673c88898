//! Attacks beside conforming peers, over TCP and over RoCEv2: wrong keys, sources and STags, floods of half-open connections and of forged
//! requests, forged packets, and peers that stop in the middle of something. The conforming ones are served all the same.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use verbena::low::{
    Cq, Data, Flags as WrFlags, Pd, Qp, QpEndpoint, QpOptions, QpState, QpType, RecvWr, SendOp,
    SendWr,
};
use verbena::{Access, Device, Listener, Memory, RemoteMemory};
use verbena_rsocket::{Flags, Net, Stream};
use verbena_testing::{wait_for, wait_until};
use verbena_wire::roce::cm::CmMessage;
use verbena_wire::roce::{Operation, Packet, Psn, Qpn, Service, Tail};

use crate::roce_peer::{Peer, cma, request};
use crate::{Counts, LIMIT, REQUEST, add, device, is_hostile, mix, read_events, serve_echoes};

/// Private data of requests whose sender is not there: the server accepts them, and does not wait.
pub(crate) const FORGED: &[u8] = b"forged";
/// The address that `keyed` refuses, and one that floods it.
const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);
/// Kinds of attacks.
const KINDS: u64 = 9;
/// Half-open connections that `keyed` and `roce` allow, and of a flood.
const HALF_OPEN: &str = "64";
const FLOOD: usize = 100;
/// Addresses of the adapters over RoCEv2, of the peer of `target`, and of the sources of forged requests.
const ROCE_SERVER: &str = "127.96.0.1";
const ROCE_CLIENT: &str = "127.96.0.2";
const TARGET_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 96, 0, 3));
const FORGED_SOURCES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 96, 1, 1),
    Ipv4Addr::new(127, 96, 1, 2),
    Ipv4Addr::new(127, 96, 1, 3),
    Ipv4Addr::new(127, 96, 1, 4),
];

pub(crate) struct Attacks {
    /// Its clients have a key. Its asynchronous events are not read.
    keyed: Listener,
    memory: Memory,
    friend: Device,
    stranger: Device,
    /// Over RoCEv2.
    roce_server: Device,
    roce: Listener,
    roce_client: Device,
    target: Target,
    /// Queue pairs that connect to each other.
    plain: Device,
    net: Arc<Net>,
    /// Its connections are accepted and never read.
    unread: Stream,
}

/// A queue pair over RoCEv2 that is connected by number, whose peer is a socket of the attacker.
struct Target {
    qp: Qp,
    number: Qpn,
    _receive: Memory,
    _cq: Cq,
    _pd: Pd,
}

impl Target {
    fn new(device: &Device) -> Target {
        let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
        let qp = Qp::new(&pd, &cq, &cq, out_of_band(QpType::Rc)).unwrap();
        qp.modify(QpState::Init).unwrap();
        let memory = pd.memory(64, Access::ALL).unwrap();
        let scatter = &[memory.sge(0, 64).unwrap()];
        qp.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
        let peer = QpEndpoint {
            address: TARGET_PEER,
            number: 0x11,
        };
        qp.set_peer(peer).unwrap();
        Target {
            number: Qpn::wrapping(qp.endpoint().unwrap().number),
            qp,
            _receive: memory,
            _cq: cq,
            _pd: pd,
        }
    }
}

fn out_of_band(qp_type: QpType) -> QpOptions {
    QpOptions::default().qp_type(qp_type).oob(true)
}

impl Attacks {
    pub(crate) fn new() -> Attacks {
        let key = ("key", "the key of the soak");
        let denied = DENIED.to_string();
        let keyed = device(&[key, ("deny", &denied), ("half_open", HALF_OPEN)]);
        // The numbers of destroyed queue pairs are free again soon (see `datagrams`).
        let reuse = ("reuse_delay", "100ms");
        let roce = |address| {
            device(&[
                ("wire", "roce"),
                ("device", address),
                ("half_open", HALF_OPEN),
                reuse,
            ])
        };
        let server = roce(ROCE_SERVER);
        let plain = device(&[
            ("device", "127.0.0.1"),
            // The attacker is on the way, so the bytes must not be in shared memory.
            ("same_host", "off"),
            ("shared_receive_wait", "300ms"),
            reuse,
        ]);
        let net = Net::open(plain.clone());
        let unread = Stream::new(&net);
        unread.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        unread.listen(64).unwrap();
        unread.set_nonblocking(true);
        Attacks {
            memory: keyed.memory(4096, Access::ALL).unwrap(),
            keyed: keyed.listen("127.0.0.1:0").unwrap(),
            friend: device(&[key]),
            stranger: device(&[("key", "not the key of the soak")]),
            target: Target::new(&server),
            roce: server.listen((ROCE_SERVER, 0)).unwrap(),
            roce_server: server,
            roce_client: roce(ROCE_CLIENT),
            plain,
            net,
            unread,
        }
    }

    pub(crate) fn serve(&self, on: &AtomicBool) {
        thread::scope(|scope| {
            scope.spawn(|| serve_echoes(&self.keyed, on));
            serve_echoes(&self.roce, on);
        });
    }

    pub(crate) fn connect(&self, on: &AtomicBool, counts: &Counts, seed: u64) {
        let mut round = seed << 32;
        while on.load(Ordering::Relaxed) {
            round += 1;
            read_events(&[
                &self.friend,
                &self.stranger,
                &self.roce_server,
                &self.roce_client,
            ]);
            if is_hostile(round) {
                self.attack(mix(round + 1));
                add(&counts.hostile);
                continue;
            }
            let (device, at, count) = match round.is_multiple_of(2) {
                true => (&self.friend, &self.keyed, &counts.keyed),
                false => (&self.roce_client, &self.roce, &counts.roce),
            };
            exchange(device, at.local_addr().unwrap(), round);
            add(count);
        }
    }

    /// Makes each attack once.
    pub(crate) fn make_each(&self, counts: &Counts) {
        for how in 0..KINDS {
            self.attack(how);
            add(&counts.hostile);
        }
    }

    /// Waits until closed sockets are gone; no forged packet has reached its target.
    pub(crate) fn settle(&self) {
        assert!(
            self.net.wait_closed(Instant::now() + LIMIT),
            "sockets leave"
        );
        let counters = self.target.qp.view().counters;
        assert_eq!(counters.messages_in, 0, "{counters:?}");
    }

    fn attack(&self, how: u64) {
        match how % KINDS {
            0 => self.connect_with_another_key(),
            1 => self.connect_from_denied_source(),
            2 => self.flood_with_half_open_connections(),
            3 => self.write_with_wrong_stag(how),
            4 => self.write_unreliably_with_wrong_stags(),
            5 => self.close_to_a_peer_that_does_not_read(),
            6 => self.resume_never(),
            7 => self.forge_requests(how),
            _ => self.forge_packets(how),
        }
    }

    fn connect_with_another_key(&self) {
        let refused = self
            .stranger
            .connect(self.keyed.local_addr().unwrap())
            .wait();
        assert!(refused.is_err(), "the key is another one");
    }

    fn connect_from_denied_source(&self) {
        let Ok(mut raw) = connect_from(DENIED, self.keyed.local_addr().unwrap()) else {
            return;
        };
        let _ = raw.write_all(REQUEST);
        // A reset, or the end of the stream.
        let read = raw.read(&mut [0; 1]);
        assert!(!matches!(read, Ok(1..)), "{read:?}");
    }

    /// While half-open connections of one source take all places, another one connects.
    fn flood_with_half_open_connections(&self) {
        let at = self.keyed.local_addr().unwrap();
        let held: Vec<_> = (0..FLOOD).map(|_| connect_from(FLOODER, at)).collect();
        exchange(&self.friend, at, 1);
        drop(held);
    }

    fn write_with_wrong_stag(&self, how: u64) {
        let at = self.keyed.local_addr().unwrap();
        let connection = self.friend.connect(at).wait().expect("it has the key");
        let buffer = self.friend.buffer_from(&[7; 64]).unwrap();
        let place = wrong_stag(self.memory.remote(), how);
        let (written, _) = connection.write(buffer, &place).wait();
        assert!(written.is_err(), "the STag is wrong");
    }

    /// After some refusals the connection fails (docs/connections.md).
    fn write_unreliably_with_wrong_stags(&self) {
        let (pd, cq) = (self.plain.pd().unwrap(), self.plain.cq(64).unwrap());
        let pair = || Qp::new(&pd, &cq, &cq, out_of_band(QpType::Uc)).unwrap();
        let (ours, theirs) = (pair(), pair());
        ours.set_peer(theirs.endpoint().unwrap()).unwrap();
        theirs.set_peer(ours.endpoint().unwrap()).unwrap();
        ours.modify(QpState::Rts).unwrap();
        let memory = pd.memory(64, Access::ALL).unwrap();
        for n in 0..32 {
            let remote = wrong_stag(memory.remote(), n).remote_addr();
            let write = SendWr {
                id: n,
                op: SendOp::Write {
                    remote,
                    immediate: None,
                },
                flags: WrFlags::SIGNALED,
                data: Data::Inline(b"stray"),
            };
            // Refused once the connection has failed.
            let _ = ours.post_send(&[write]);
        }
        wait_until("the connection fails", || theirs.state() == QpState::Err);
    }

    /// `rclose` does not wait for the peer, which takes no more than its buffers hold.
    fn close_to_a_peer_that_does_not_read(&self) {
        let closed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let socket = wait_for("a connection", || self.unread.accept().ok());
                wait_until("its peer has closed", || closed.load(Ordering::Relaxed));
                drop(socket);
            });
            let socket = Stream::new(&self.net);
            socket
                .connect(self.unread.local_addr().unwrap())
                .expect("honest so far");
            socket.set_nonblocking(true);
            while socket.send(&[7; 8192], Flags::default()).is_ok() {}
            drop(socket);
            closed.store(true, Ordering::Relaxed);
        });
    }

    /// A message finds no receive, and the peer does not send it again when there is one: the receive is for others then.
    fn resume_never(&self) {
        let (pd, cq) = (self.plain.pd().unwrap(), self.plain.cq(16).unwrap());
        let srq = pd.srq(4, 1).unwrap();
        let listener = self.plain.listen("127.0.0.1:0").unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let forwards = AtomicBool::new(true);
        thread::scope(|scope| {
            let (at, to) = (relay.local_addr().unwrap(), listener.local_addr().unwrap());
            let (relay, forwards) = (&relay, &forwards);
            scope.spawn(move || forward(relay, to, forwards));
            let theirs = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
            let ours = Qp::with_srq(&pd, &cq, &cq, &srq, QpOptions::default()).unwrap();
            let connecting = theirs.connect(at, b"").unwrap();
            let request = listener.next().wait().unwrap();
            request
                .accept_on(&ours, b"")
                .unwrap()
                .wait()
                .expect("honest so far");
            connecting.wait().expect("honest so far");
            let send = SendWr {
                id: 1,
                op: SendOp::Send {
                    invalidate: None,
                    immediate: None,
                },
                flags: WrFlags::SIGNALED,
                data: Data::Inline(b"a message"),
            };
            theirs.post_send(&[send]).unwrap();
            wait_until("RNR", || theirs.view().counters.rnr_received > 0);
            forwards.store(false, Ordering::Relaxed);
            srq.post(&[RecvWr {
                id: 2,
                scatter: &[],
            }])
            .unwrap();
            wait_until("the connection fails", || ours.state() == QpState::Err);
            let cause = ours.view().cause.unwrap();
            assert!(cause.contains("did not resume"), "{cause}");
        });
    }

    /// Requests over RoCEv2 whose senders are not there, as many as all places.
    fn forge_requests(&self, how: u64) {
        let at = self.roce.local_addr().unwrap();
        for source in FORGED_SOURCES {
            let source = IpAddr::V4(source);
            let (mut peer, private) = (Peer::without_answers(source), cma(source, at.ip(), FORGED));
            for n in 0..16 {
                let id = mix(how + n) as u32 | 1;
                let req = request(id, at, &private);
                peer.send(at.ip(), id.into(), CmMessage::Req(req));
            }
        }
        exchange(&self.roce_client, at, how);
    }

    /// Packets from the address of the target's peer: with a wrong ICRC, with another PSN than the next one, and no packets at all.
    fn forge_packets(&self, how: u64) {
        let (peer, at) = (
            Peer::without_answers(TARGET_PEER),
            self.roce.local_addr().unwrap(),
        );
        for n in 0..16 {
            let random = mix(how + n);
            let mut packet = Packet {
                payload: b"forged",
                ack_request: true,
                ..Packet::new(
                    Operation::SendOnly(Service::Rc, Tail::Plain),
                    self.target.number,
                    Psn::wrapping(0),
                )
            };
            match n % 3 {
                0 => peer.send_damaged(at.ip(), &packet),
                1 => {
                    packet.psn = Psn::wrapping(1 + random as u32 % 0xff_fffe);
                    peer.send_packet(at.ip(), &packet);
                }
                _ => peer.send_bytes(at.ip(), &random.to_be_bytes().repeat(1 + n as usize)),
            }
        }
    }
}

/// A message there and back.
fn exchange(device: &Device, at: SocketAddr, round: u64) {
    let connection = device.connect(at).wait().expect("an honest connection");
    let bytes = vec![round as u8; 1 + mix(round + 3) as usize % 10_000];
    let receiving = connection.recv(device.buffer(bytes.len()).unwrap());
    let sending = connection.send(device.buffer_from(&bytes).unwrap());
    sending.wait().0.expect("an honest send");
    let (received, answer) = receiving.wait();
    received.expect("an honest answer");
    assert!(answer[..] == bytes[..], "every byte comes back");
}

/// The same place by an STag that was not given to the peer.
fn wrong_stag(place: RemoteMemory, how: u64) -> RemoteMemory {
    let mut bytes = place.to_bytes();
    for (byte, other) in bytes[16..20].iter_mut().zip((mix(how) | 1).to_le_bytes()) {
        *byte ^= other;
    }
    RemoteMemory::from_bytes(&bytes).unwrap()
}

fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&fd, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&fd, &to)?;
    let raw = TcpStream::from(fd);
    raw.set_read_timeout(Some(LIMIT))?;
    Ok(raw)
}

/// Forwards one connection to `to` and back, what its initiator sends only while `forwards`.
fn forward(relay: &TcpListener, to: SocketAddr, forwards: &AtomicBool) {
    let (from, _) = relay.accept().unwrap();
    let into = TcpStream::connect(to).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Ends when either side closes.
            let _ = std::io::copy(&mut &into, &mut &from);
            let _ = from.shutdown(Shutdown::Both);
        });
        let mut some = [0; 4096];
        while let Ok(n @ 1..) = (&from).read(&mut some) {
            if forwards.load(Ordering::Relaxed) && (&into).write_all(&some[..n]).is_err() {
                break;
            }
        }
        let _ = into.shutdown(Shutdown::Both);
    });
}
