//! Connections over a port of the adapter's own (setting `port`): two adapters with cables to a hub that loses, repeats, reorders and corrupts frames,
//! and an adapter on a TAP whose other end is the kernel, where an adapter with sockets is.
//! Every byte of every operation is compared.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, listen, recvmsg, send, socket_with,
};
use verbena::low::{Data, Flags, RecvWr};
use verbena::tcp::{Acknowledgement, Fill, TcpOptions, TcpQp, TcpSendWr};
use verbena::{Access, Connection, Device, Fault, Status};
use verbena_testing::own_network;

use crate::common::low::complete;
use crate::common::{device, pattern};

/// Faults of a hub, in thousandths of frames.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    loss: u64,
    repeat: u64,
    /// Frames that come behind the next one.
    reorder: u64,
    corrupt: u64,
}

/// A hub with a socket for cables: each frame goes to all others.
struct Hub {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// Frames that had a fault.
    faulty: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn cable_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

impl Hub {
    fn new(name: &str, faults: Faults) -> Hub {
        let file = format!("verbena-hub-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        let listener = cable_socket();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 16).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let faulty = Arc::new(AtomicU64::new(0));
        let (stopped, counter) = (stop.clone(), faulty.clone());
        let thread = std::thread::spawn(move || run_hub(&listener, faults, &stopped, &counter));
        Hub {
            path,
            stop,
            faulty,
            thread: Some(thread),
        }
    }

    /// The setting `port` of an adapter at this hub.
    fn port(&self, number: u8) -> String {
        let path = self.path.display();
        format!("cable:{path},10.9.0.{number}/24,fd09::{number}/64")
    }

    fn device(&self, number: u8, settings: &[(&str, &str)]) -> Device {
        let port = self.port(number);
        let mut all = vec![("port", port.as_str())];
        all.extend(settings);
        device(&all)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn run_hub(listener: &OwnedFd, faults: Faults, stop: &AtomicBool, faulty: &AtomicU64) {
    let mut cables: Vec<OwnedFd> = Vec::new();
    let mut room = vec![0; 70_000];
    let mut state = 7;
    let mut held: Option<(usize, Vec<u8>)> = None;
    while !stop.load(Ordering::Acquire) {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(cables.iter().map(|one| PollFd::new(one, PollFlags::IN)));
        let wait = Timespec::try_from(Duration::from_millis(5)).unwrap();
        if poll(&mut fds, Some(&wait)).unwrap_or(0) == 0 {
            // Nothing follows that would overtake it.
            if let Some((from, frame)) = held.take() {
                forward(&cables, from, &frame);
            }
            continue;
        }
        drop(fds);
        while let Ok(one) = accept_with(listener, SocketFlags::NONBLOCK) {
            cables.push(one);
        }
        let mut gone = Vec::new();
        for from in 0..cables.len() {
            for _ in 0..64 {
                let mut parts = [IoSliceMut::new(&mut room)];
                let mut none = RecvAncillaryBuffer::default();
                let len = match recvmsg(&cables[from], &mut parts, &mut none, RecvFlags::DONTWAIT) {
                    Ok(message) if message.bytes > 0 => message.bytes,
                    Err(rustix::io::Errno::AGAIN) => break,
                    _ => {
                        gone.push(from);
                        break;
                    }
                };
                let mut frame = room[..len].to_vec();
                let mut happens = |per_mille| {
                    let does = random(&mut state) % 1000 < per_mille;
                    faulty.fetch_add(does.into(), Ordering::Relaxed);
                    does
                };
                if happens(faults.loss) {
                    continue;
                }
                if happens(faults.corrupt) {
                    let at = random(&mut state) as usize % len;
                    frame[at] ^= 1 << (random(&mut state) % 8);
                } else if held.is_none() && happens(faults.reorder) {
                    held = Some((from, frame));
                    continue;
                } else if happens(faults.repeat) {
                    forward(&cables, from, &frame);
                }
                forward(&cables, from, &frame);
                if let Some((from, frame)) = held.take() {
                    forward(&cables, from, &frame);
                }
            }
        }
        for at in gone.into_iter().rev() {
            cables.remove(at);
            held = None;
        }
    }
}

/// A cable that has no room loses the frame, as on any network.
fn forward(cables: &[OwnedFd], from: usize, frame: &[u8]) {
    let others = cables.iter().enumerate().filter(|(at, _)| *at != from);
    for (_, cable) in others {
        let _ = send(cable, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Connections of two adapters; the second one listens at this address and accepts.
fn connected(ours: &Device, theirs: &Device, at: &str) -> (Connection, Connection) {
    let listener = theirs.listen(at).unwrap();
    let connecting = ours.connect(listener.local_addr().unwrap());
    let there = listener.accept().wait().unwrap();
    (connecting.wait().unwrap(), there)
}

/// Sends, Writes, Reads and atomics of one side, of lengths around those of segments.
fn operate(a: &Connection, b: &Connection, atomics: bool) {
    let memory = b.device().memory(1 << 20, Access::ALL).unwrap();
    for (salt, len) in [0, 1, 64, 1400, 1460, 5000, 70_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let data = pattern(len, salt as u8);
        let receiving = b.recv(b.device().buffer(1 << 20).unwrap());
        let (sent, buf) = a.send(a.device().buffer_from(&data).unwrap()).wait();
        sent.unwrap();
        let (received, got) = receiving.wait();
        assert_eq!(received.unwrap().len, len);
        assert!(got[..] == data[..], "sent {len}");
        let there = memory.remote().slice(0, len as u64).unwrap();
        let (written, mut buf) = a.write(buf, &there).wait();
        written.unwrap();
        buf.fill(0);
        let (read, buf) = a.read(buf, &there).wait();
        read.unwrap();
        assert!(buf[..] == data[..], "read {len}");
    }
    if atomics {
        memory.store(64, 5).unwrap();
        let word = memory.remote_value::<u64>(64).unwrap();
        assert_eq!(a.fetch_add(&word, 3).wait().unwrap(), 5);
        assert_eq!(a.compare_swap(&word, 8, 99).wait().unwrap(), 8);
        assert_eq!(memory.load(64).unwrap(), 99);
    }
}

const KINDS: &[&[(&str, &str)]] = &[
    &[],
    &[("crc", "off")],
    &[("markers", "on")],
    &[("personality", "iwarp")],
    &[("extensions", "off"), ("rfc7306", "on")],
    &[("key", "a key of sixteen or more bytes"), ("tls", "psk")],
];

#[test]
fn port_carries_every_operation() {
    for (at, kind) in KINDS.iter().enumerate() {
        let hub = Hub::new(&format!("kinds{at}"), Faults::default());
        let (ours, theirs) = (hub.device(1, kind), hub.device(2, kind));
        for address in ["10.9.0.2:0", "[fd09::2]:0"] {
            let (a, b) = connected(&ours, &theirs, address);
            operate(&a, &b, true);
            operate(&b, &a, true);
        }
    }
}

#[test]
fn lossy_port_carries_every_byte() {
    let faults = Faults {
        loss: 10,
        repeat: 10,
        reorder: 30,
        corrupt: 5,
    };
    for (at, kind) in [&[("crc", "on")], &[("personality", "iwarp")]]
        .iter()
        .enumerate()
    {
        let hub = Hub::new(&format!("lossy{at}"), faults);
        let (ours, theirs) = (hub.device(1, *kind), hub.device(2, *kind));
        let (a, b) = connected(&ours, &theirs, "10.9.0.2:0");
        operate(&a, &b, true);
        operate(&b, &a, true);
        assert!(hub.faulty.load(Ordering::Relaxed) > 0);
    }
}

/// A message without a receive waits for it, also of a peer that cannot be told.
#[test]
fn message_over_port_waits_for_a_receive() {
    for kind in [&[][..], &[("extensions", "off")][..]] {
        let hub = Hub::new(
            if kind.is_empty() { "rnr" } else { "held" },
            Faults::default(),
        );
        let (ours, theirs) = (hub.device(1, kind), hub.device(2, kind));
        let (a, b) = connected(&ours, &theirs, "10.9.0.2:0");
        let data = pattern(100_000, 9);
        let sending = a.send(a.device().buffer_from(&data).unwrap());
        // A Write after it arrives, and is executed in its turn.
        let memory = b.device().memory(8, Access::ALL).unwrap();
        let word = a.device().buffer_from(&7_u64.to_ne_bytes()).unwrap();
        let writing = a.write(word, &memory.remote());
        let received = b.recv(b.device().buffer(100_000).unwrap()).wait();
        assert_eq!(received.0.unwrap().len, data.len());
        assert!(received.1[..] == data[..]);
        sending.wait().0.unwrap();
        writing.wait().0.unwrap();
        let echo = b.recv(b.device().buffer(1).unwrap());
        a.send(a.device().buffer_from(b"x").unwrap())
            .wait()
            .0
            .unwrap();
        echo.wait().0.unwrap();
        assert_eq!(memory.get::<u64>(0).unwrap(), 7);
    }
}

#[test]
fn port_without_listener_refuses() {
    let hub = Hub::new("refused", Faults::default());
    let (ours, theirs) = (hub.device(1, &[]), hub.device(2, &[]));
    let listener = theirs.listen("10.9.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let to = SocketAddr::new("10.9.0.2".parse().unwrap(), port);
    let refused = ours.connect(to).wait().unwrap_err();
    assert_eq!(refused.fault(), Fault::Peer, "{refused}");
    assert!(refused.to_string().contains("refused"), "{refused}");
}

#[test]
fn missing_switch_is_named() {
    let ours = device(&[("port", "cable:/nonexistent/cable.sock,10.9.0.1/24")]);
    let error = ours.connect("10.9.0.2:4000").wait().unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("verbena switch") && text.contains("/nonexistent"),
        "{text}"
    );
}

/// The peer sees the end of a connection, and of a device.
#[test]
fn port_tells_the_peer_of_the_end() {
    let hub = Hub::new("end", Faults::default());
    let (ours, theirs) = (hub.device(1, &[]), hub.device(2, &[]));
    let (a, b) = connected(&ours, &theirs, "10.9.0.2:0");
    let waiting = b.recv(b.device().buffer(8).unwrap());
    drop(a);
    waiting.wait().0.unwrap_err();
    let (a, b) = connected(&ours, &theirs, "10.9.0.2:0");
    let waiting = a.recv(a.device().buffer(8).unwrap());
    drop((b, theirs));
    waiting.wait().0.unwrap_err();
}

/// Frames that make no sense, and copies of real ones with changes, disturb no connection.
#[test]
fn hostile_frames_end_no_connection() {
    let hub = Hub::new("hostile", Faults::default());
    let (ours, theirs) = (hub.device(1, &[]), hub.device(2, &[]));
    let (a, b) = connected(&ours, &theirs, "10.9.0.2:0");
    let stop = Arc::new(AtomicBool::new(false));
    let attacker = attack(&hub.path, &stop);
    for _ in 0..4 {
        operate(&a, &b, true);
    }
    stop.store(true, Ordering::Release);
    attacker.join().unwrap();
    operate(&b, &a, true);
}

/// A station that hears everything and sends what it heard with changes beyond the addresses and ports of TCP.
fn attack(path: &Path, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let fd = cable_socket();
    connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut room = vec![0; 70_000];
        let mut state = 99;
        while !stop.load(Ordering::Acquire) {
            let mut pfd = [PollFd::new(&fd, PollFlags::IN)];
            let wait = Timespec::try_from(Duration::from_millis(5)).unwrap();
            if poll(&mut pfd, Some(&wait)).unwrap_or(0) == 0 {
                continue;
            }
            let mut parts = [IoSliceMut::new(&mut room)];
            let mut none = RecvAncillaryBuffer::default();
            let Ok(message) = recvmsg(&fd, &mut parts, &mut none, RecvFlags::DONTWAIT) else {
                continue;
            };
            let len = message.bytes;
            for _ in 0..2 {
                let mut frame = room[..len].to_vec();
                match random(&mut state) % 4 {
                    0 => frame.truncate(random(&mut state) as usize % (len + 1)),
                    1 => {
                        for byte in &mut frame[12.min(len)..] {
                            *byte = random(&mut state) as u8;
                        }
                    }
                    // Sequence numbers far from the window, with every flag, and a valid checksum.
                    _ if len >= 54 => {
                        let flags = random(&mut state) as u8;
                        let sequence = [frame[38], frame[39], frame[40], frame[41]];
                        let far = 0x4000_0000 + (random(&mut state) as u32 >> 2);
                        let sequence = u32::from_be_bytes(sequence).wrapping_add(far);
                        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
                        frame[47] = flags;
                        complete_checksum(&mut frame);
                    }
                    _ => {}
                }
                if !frame.is_empty() {
                    let _ = send(&fd, &frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            }
        }
    })
}

/// Computes the checksum of TCP over IPv4 without options.
fn complete_checksum(frame: &mut [u8]) {
    let sum = |sum: u32, bytes: &[u8]| {
        bytes.chunks(2).fold(sum, |sum, pair| {
            sum + (u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        })
    };
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let Some(tcp) = frame.get(34..14 + total).filter(|tcp| tcp.len() >= 20) else {
        return;
    };
    let mut tcp = tcp.to_vec();
    tcp[16..18].fill(0);
    let mut all = sum(6 + tcp.len() as u32, &frame[26..34]);
    all = sum(all, &tcp);
    while all > 0xffff {
        all = (all & 0xffff) + (all >> 16);
    }
    frame[50..52].copy_from_slice(&(!(all as u16)).to_be_bytes());
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip(8)").success(), "ip {arguments}");
}

/// An adapter on a TAP and one with the kernel's sockets, in both directions, over IPv4 and IPv6.
#[test]
fn port_on_a_tap_talks_to_sockets() {
    own_network!();
    ip("link set lo up");
    ip("tuntap add dev tap0 mode tap");
    ip("address add 10.7.0.1/24 dev tap0");
    ip("address add fd07::1/64 dev tap0 nodad");
    ip("link set tap0 up");
    for kind in KINDS {
        let mut ours = vec![("port", "tap:tap0,10.7.0.2/24,fd07::2/64")];
        ours.extend(*kind);
        let mut theirs = vec![("device", "10.7.0.1")];
        theirs.extend(*kind);
        let (ours, theirs) = (device(&ours), device(&theirs));
        for (at, kernel) in [("10.7.0.2:0", "10.7.0.1:0"), ("[fd07::2]:0", "[fd07::1]:0")] {
            let (a, b) = connected(&ours, &theirs, kernel);
            operate(&a, &b, true);
            operate(&b, &a, true);
            let (a, b) = connected(&theirs, &ours, at);
            operate(&a, &b, true);
            operate(&b, &a, true);
        }
    }
}

/// A queue pair on plain TCP sends bytes to a server that returns them.
fn echo_over(device: &Device, to: &str) {
    const LEN: usize = 200_000;
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let memory = pd.memory(2 * LEN, Access::ALL).unwrap();
    let data = pattern(LEN, 4);
    memory.write_at(0, &data).unwrap();
    let options = TcpOptions::default()
        .fill(Fill::Whole)
        .acknowledgement(Acknowledgement::Delivered);
    let qp = TcpQp::connect(&pd, (&cq, &cq), to.parse().unwrap(), options).unwrap();
    let scatter = &[memory.sge(LEN, LEN).unwrap()];
    qp.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
    let (flags, source) = (Flags::SIGNALED, [memory.sge(0, LEN).unwrap()]);
    qp.post_send(&[TcpSendWr {
        id: 2,
        flags,
        data: Data::Gather(&source),
    }])
    .unwrap();
    let mut done = complete(&cq, 2);
    done.sort_by_key(|wc| wc.id);
    let ids: Vec<_> = done.iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(ids, [(1, Status::Success), (2, Status::Success)]);
    let mut came = vec![0; LEN];
    memory.read_at(LEN, &mut came).unwrap();
    assert!(came == data);
}

/// M13: the port takes the frames of its connections and listeners, the kernel gets the others, at one address.
#[test]
fn port_and_kernel_share_an_address() {
    own_network!();
    ip("link set lo up");
    // The kernel's interface with the shared address, and another station on the wire.
    ip("tuntap add dev host0 mode tap");
    ip("address add 10.8.0.1/24 dev host0");
    ip("link set host0 up");
    let hub = Hub::new("shared", Faults::default());
    let shared = format!("cable:{},10.8.0.1/24,host=host0", hub.path.display());
    let ours = device(&[("port", &shared)]);
    let other = device(&[("port", &format!("cable:{},10.8.0.2/24", hub.path.display()))]);
    let (a, b) = connected(&other, &ours, "10.8.0.1:0");
    operate(&a, &b, true);
    // An ordinary server at the same address, which a stack on the wire reaches.
    let server = std::net::TcpListener::bind("10.8.0.1:8080").unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, peer) = server.accept().unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
        peer
    });
    echo_over(&other, "10.8.0.1:8080");
    assert_eq!(echo.join().unwrap().ip().to_string(), "10.8.0.2");
    // Both directions still work, and the kernel has reset nothing.
    let (c, d) = connected(&ours, &other, "10.8.0.2:0");
    operate(&c, &d, true);
    operate(&b, &a, true);
}
