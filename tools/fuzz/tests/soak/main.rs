//! A soak test: connections over TCP and RoCEv2, stream sockets, datagrams, users of a shared receive queue, NBD clients and split hosts come
//! and go, a twentieth of the peers misbehave, and at the end the process holds no more descriptors, threads and memory than before. It takes a few
//! seconds, ten minutes if `LONG_TESTS` is set, and `SOAK_SECONDS` seconds if that is set.

mod attacks;
mod datagrams;
mod export;
#[path = "../../../../split/drivers/tests/drivers/forged_request.rs"]
mod forged_request;
#[path = "../../../../storage/disks/tests/common/ram.rs"]
mod ram;
#[path = "../../../../crates/engine/tests/common/roce.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "tests of the engine use the rest"
)]
mod roce_peer;
mod shared;
#[path = "../../../../split/lan/tests/common/space.rs"]
mod space;
mod split;

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use attacks::{Attacks, FORGED};
use datagrams::Datagrams;
use export::Disk;
use shared::Shared;
use space::Netns;
use split::Split;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use verbena::low::{Cq, Wc};
use verbena::{Access, Config, Connection, Device, Listener, Memory};
use verbena_rsocket::{Flags, Linger, Net, Stream};
use verbena_testing::serve_until;

/// Threads that connect again and again, of each kind.
const CLIENTS: u64 = 3;
/// One attempt in this many misbehaves.
const HOSTILE: u64 = 20;
/// The seed of the first phase, which creates what stays: each attack is made at least once.
const FIRST: u64 = 1;
/// An MPA Request of revision 1 without private data (RFC 5044 §7.1.1).
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01\0\0";
/// Counts what is allocated.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Growth of the allocated memory that is allowed between two idle moments: buffers of threads that were small before.
const SLACK: usize = 4 << 20;
/// Growth of the resident memory, which also has what the allocator keeps between live blocks in the arenas of two dozen threads.
const RESIDENT_SLACK: usize = 96 << 20;
/// How often a long run prints what the process holds.
const PROGRESS: Duration = Duration::from_secs(60);
/// Longer than any operation takes that works.
const LIMIT: Duration = Duration::from_secs(60);

/// Completed rounds of conforming peers of each kind, and rounds of misbehaving peers of any kind.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    sockets: AtomicU64,
    shared: AtomicU64,
    datagrams: AtomicU64,
    exports: AtomicU64,
    hosts: AtomicU64,
    /// With a key.
    keyed: AtomicU64,
    /// Over RoCEv2.
    roce: AtomicU64,
    hostile: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The resources of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resources {
    descriptors: usize,
    threads: usize,
    allocated: usize,
    resident: usize,
}

impl Resources {
    fn now() -> Resources {
        let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next());
        let heap = HEAP.stats();
        Resources {
            // Other threads allocate between the two loads.
            allocated: heap.bytes_allocated.saturating_sub(heap.bytes_deallocated),
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            resident: resident.unwrap().parse::<usize>().unwrap() << 10,
        }
    }
}

/// Clears a flag when it is dropped, also while a client panics: the server threads must end for the test to fail.
struct ClearOnDrop<'a>(&'a AtomicBool);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Both sides, which exist from the first phase to the last.
struct World {
    client: Device,
    server: Device,
    listener: Listener,
    memory: Memory,
    net: std::sync::Arc<Net>,
    sockets: Stream,
    shared: Shared,
    datagrams: Datagrams,
    disk: Disk,
    attacks: Attacks,
    /// None where no TAP interface can be created.
    split: Option<Split>,
    counts: Counts,
}

fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    // Shorter than the defaults for peers that misbehave, and long enough for conforming ones on a busy machine.
    config.set("startup_timeout", "10s").unwrap();
    config.set("linger", "1s").unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    config
}

fn device(settings: &[(&str, &str)]) -> Device {
    Device::with(config(settings)).unwrap()
}

impl World {
    fn new(split: Option<Split>) -> World {
        let server = device(&[]);
        let sockets = Stream::new(&Net::open(device(&[])));
        sockets.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        sockets.listen(64).unwrap();
        sockets.set_nonblocking(true);
        World {
            listener: server.listen("127.0.0.1:0").unwrap(),
            memory: server.memory(1 << 20, Access::ALL).unwrap(),
            client: device(&[]),
            server,
            net: Net::open(device(&[])),
            sockets,
            shared: Shared::new(),
            datagrams: Datagrams::new(),
            disk: Disk::new(CLIENTS),
            attacks: Attacks::new(),
            split,
            counts: Counts::default(),
        }
    }

    /// Runs all peers for `time`; their threads have ended when this returns.
    fn run(&self, time: Duration, seed: u64) {
        let (clients, servers) = (AtomicBool::new(true), AtomicBool::new(true));
        thread::scope(|scope| {
            let _stop = ClearOnDrop(&servers);
            scope.spawn(|| serve_echoes(&self.listener, &servers));
            scope.spawn(|| self.serve_sockets(&servers));
            scope.spawn(|| self.shared.serve(&servers));
            scope.spawn(|| self.datagrams.serve(&servers));
            scope.spawn(|| self.attacks.serve(&servers));
            thread::scope(|scope| {
                let (clients, counts) = (&clients, &self.counts);
                for number in 0..CLIENTS {
                    let own = seed << 8 | number;
                    scope.spawn(move || self.connect(clients, number, seed));
                    scope.spawn(move || self.connect_sockets(clients, seed + number));
                    scope.spawn(move || self.shared.connect(clients, counts, own));
                    scope.spawn(move || self.datagrams.exchange(clients, counts, own));
                    scope.spawn(move || self.disk.connect(clients, counts, number, seed));
                    scope.spawn(move || self.attacks.connect(clients, counts, own));
                    if let Some(split) = &self.split {
                        scope.spawn(move || split.dial(clients, counts, own));
                    }
                }
                if let Some(split) = &self.split {
                    scope.spawn(move || split.drive(clients, counts, seed));
                }
                if seed == FIRST {
                    scope.spawn(|| self.attacks.make_each(counts));
                }
                wait_out(time);
                clients.store(false, Ordering::Relaxed);
            });
        });
    }

    /// Returns true if the peer of this round misbehaves, after it has done so.
    fn misbehaves(&self, at: SocketAddr, round: u64) -> bool {
        let hostile = is_hostile(round);
        if hostile {
            misbehave(at, mix(round + 1));
            add(&self.counts.hostile);
        }
        hostile
    }

    fn connect(&self, on: &AtomicBool, number: u64, seed: u64) {
        let at = self.listener.local_addr().unwrap();
        let mut round = seed << 32 | number << 24;
        while on.load(Ordering::Relaxed) {
            round += 1;
            if self.misbehaves(at, round) {
                continue;
            }
            let connection = self.client.connect(at).wait().expect("honest");
            let left = is_hostile(round + 2);
            self.use_connection(&connection, number, round, left);
            add(&self.counts.connections);
            read_events(&[&self.client, &self.server]);
        }
    }

    /// A message there and back, a write that is read back, an atomic; or, if `left`, a disconnect in between.
    fn use_connection(&self, connection: &Connection, number: u64, round: u64, left: bool) {
        let len = 1 + mix(round + 3) as usize % 40_000;
        let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ round) as u8).collect();
        // Data in transit when a connection is dropped may be placed after the next connection has written: such rounds use a separate slot.
        let slot = if left { number + CLIENTS } else { number };
        let slot = self.memory.remote().slice(slot << 16, 1 << 16).unwrap();
        let place = slot.slice(8, len as u64).unwrap();
        let buffer = || self.client.buffer_from(&bytes).unwrap();
        let empty = || self.client.buffer(len).unwrap();
        let receiving = connection.recv(empty());
        let sending = connection.send(buffer());
        if left {
            drop(connection.write(buffer(), &place));
            return;
        }
        sending.wait().0.expect("an honest send");
        let (received, answer) = receiving.wait();
        received.expect("an honest answer");
        assert!(answer[..] == bytes[..], "every byte comes back");
        connection
            .write(buffer(), &place)
            .wait()
            .0
            .expect("a write");
        let (read, answer) = connection.read(empty(), &place).wait();
        read.expect("a read");
        let (found, wrote) = (answer[0], bytes[0]);
        assert!(answer[..] == bytes[..], "{found:#x} instead of {wrote:#x}");
        let word = slot.value::<u64>(0).unwrap();
        connection.fetch_add(&word, 1).wait().expect("an atomic");
    }

    fn serve_sockets(&self, on: &AtomicBool) {
        thread::scope(|scope| {
            let accept = || {
                let Ok(socket) = self.sockets.accept() else {
                    return false;
                };
                scope.spawn(move || {
                    socket.set_nonblocking(false);
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(len @ 1..) = socket.recv(&mut bytes, Flags::default()) {
                        if socket.send(&bytes[..len], Flags::default()).is_err() {
                            break;
                        }
                    }
                });
                true
            };
            serve_until(|| !on.load(Ordering::Relaxed), accept);
        });
    }

    fn connect_sockets(&self, on: &AtomicBool, seed: u64) {
        let at = self.sockets.local_addr().unwrap();
        let mut round = seed << 40;
        while on.load(Ordering::Relaxed) {
            round += 1;
            if self.misbehaves(at, round) {
                continue;
            }
            let socket = Stream::new(&self.net);
            socket.connect(at).expect("honest");
            let bytes = vec![round as u8; 1 + mix(round + 2) as usize % 60_000];
            let sent = socket
                .send(&bytes, Flags::default())
                .expect("an honest send");
            if is_hostile(round + 3) {
                // Disconnects before the answer: with a reset, or without.
                if round.is_multiple_of(2) {
                    socket.set_options(|options| options.linger = Linger::For(Duration::ZERO));
                }
                continue;
            }
            let mut answer = vec![0; sent];
            let got = socket.recv(&mut answer, Flags::WAIT_ALL);
            assert_eq!(got.expect("an honest answer"), sent);
            assert!(answer == bytes[..sent], "every byte comes back");
            add(&self.counts.sockets);
        }
    }

    /// Waits until closed sockets are gone and the unit has no hosts.
    fn settle(&self) {
        assert!(
            self.net.wait_closed(Instant::now() + LIMIT),
            "sockets leave"
        );
        self.attacks.settle();
        if let Some(split) = &self.split {
            split.settle();
        }
    }
}

/// Lets the peers run for `time`, and prints what the process holds meanwhile.
fn wait_out(time: Duration) {
    let begin = Instant::now();
    while let Some(left) = time.checked_sub(begin.elapsed()) {
        // real time: the duration of the test is its subject.
        thread::sleep(left.min(PROGRESS));
        println!("after {:.0?}: {:?}", begin.elapsed(), Resources::now());
    }
}

/// Asynchronous events that are not read would be kept.
fn read_events(devices: &[&Device]) {
    for device in devices {
        while device.next_event().is_some() {}
    }
}

/// Accepts connections, and returns every message to its sender.
fn serve_echoes(listener: &Listener, on: &AtomicBool) {
    thread::scope(|scope| {
        let accept = || {
            let Some(request) = listener.try_next().unwrap() else {
                return false;
            };
            let is_forged = request.private_data().starts_with(FORGED);
            let accepting = request.accept(b"");
            if is_forged {
                return true;
            }
            scope.spawn(move || {
                if let Ok(connection) = accepting.wait() {
                    echo(&connection);
                }
            });
            true
        };
        serve_until(|| !on.load(Ordering::Relaxed), accept);
    });
}

fn echo(connection: &Connection) {
    loop {
        let Ok(buffer) = connection.device().buffer(40_000) else {
            return;
        };
        let (received, message) = connection.recv(buffer).wait();
        if received.is_err() || connection.send(message).wait().0.is_err() {
            return;
        }
    }
}

/// A peer that breaks the protocol, for a fraction of a second.
fn misbehave(at: SocketAddr, how: u64) {
    let Ok(mut raw) = TcpStream::connect(at) else {
        return;
    };
    raw.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let garbage: Vec<u8> = (0..300_u64).map(|at| mix(at ^ how) as u8).collect();
    let reply = |raw: &mut TcpStream| drop(raw.read(&mut [0; 64]));
    // The server may close the connection at any byte.
    let _ = match how % 7 {
        // Silent.
        0 => {
            // real time: a peer that is silent for a while.
            thread::sleep(Duration::from_millis(50));
            Ok(())
        }
        1 => raw.write_all(&garbage),
        // Half a request; a request, then close; a request, then no FPDU.
        2 => raw.write_all(&REQUEST[..9]),
        3 => raw.write_all(REQUEST),
        4 => raw.write_all(REQUEST).map(|()| reply(&mut raw)),
        // Garbage in place of FPDUs.
        5 => raw.write_all(REQUEST).and_then(|()| {
            reply(&mut raw);
            raw.write_all(&garbage)
        }),
        // The beginning of a TLS ClientHello.
        _ => raw.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
    };
}

/// A pseudorandom number, the same in every run.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

/// The peer of this round misbehaves.
fn is_hostile(round: u64) -> bool {
    mix(round).is_multiple_of(HOSTILE)
}

/// Waits for this many completions.
fn completions(cq: &Cq, count: usize) -> Vec<Wc> {
    let (mut all, mut some) = (Vec::new(), [Wc::default(); 16]);
    while all.len() < count {
        let n = cq.wait(&mut some).unwrap();
        all.extend_from_slice(&some[..n]);
    }
    all
}

fn duration() -> Duration {
    let seconds = match std::env::var("SOAK_SECONDS") {
        Ok(seconds) => seconds.parse().expect("a number of seconds"),
        Err(_) if std::env::var_os("LONG_TESTS").is_some() => 600,
        Err(_) => 2,
    };
    Duration::from_secs(seconds)
}

#[test]
fn soak_leaks_nothing() {
    // The split driver needs network interfaces; where none can be created, the test runs without it. New threads are in the network
    // namespace of the thread that creates them.
    let ran = space::privileged("soak_leaks_nothing", || {
        Netns::new().run(|| soak(Some(Split::new())));
    });
    if !ran {
        soak(None);
    }
}

fn soak(split: Option<Split>) {
    let time = duration();
    let world = World::new(split);
    // What the first connections create stays: threads, rings, arenas of the allocator.
    world.run(time / 4, FIRST);
    world.settle();
    let before = settled_resources(Duration::from_secs(3), |_| false);
    let known = descriptors();
    world.run(time - time / 4, FIRST + 1);
    world.settle();
    let same = |held: Resources| {
        held.descriptors <= before.descriptors
            && held.threads <= before.threads
            && held.allocated <= before.allocated + SLACK
            && held.resident <= before.resident + RESIDENT_SLACK
    };
    // Longer than the timeouts set here.
    let after = settled_resources(Duration::from_secs(15), same);
    let counts = &world.counts;
    println!("{time:?}: {counts:?}; {before:?}, then {after:?}");
    let mut new = descriptors();
    new.retain(|one| !known.contains(one));
    assert!(same(after), "{before:?}, then {after:?}; new: {new:#?}");
    assert!(counts.hostile.load(Ordering::Relaxed) > 0);
}

/// The target of each descriptor, sorted, for the message of a failed test.
fn descriptors() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    links.sort();
    links
}

/// The resources of the process once they satisfy `satisfies`, or their number has not changed for so long.
fn settled_resources(unchanged: Duration, satisfies: impl Fn(Resources) -> bool) -> Resources {
    let end = Instant::now() + LIMIT;
    let (mut last, mut since) = (Resources::now(), Instant::now());
    loop {
        // real time: resources that do not change for some seconds are those that stay.
        thread::sleep(Duration::from_millis(100));
        let held = Resources::now();
        if satisfies(held) || Instant::now() >= end {
            return held;
        }
        if (held.descriptors, held.threads) != (last.descriptors, last.threads) {
            (last, since) = (held, Instant::now());
        }
        if since.elapsed() > unchanged {
            return held;
        }
    }
}
