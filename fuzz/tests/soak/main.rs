//! A soak test: connections, stream sockets, datagrams, users of a shared receive queue, NBD clients and split hosts come and go, a
//! twentieth of the peers misbehave, and at the end descriptors, threads and memory are where they were. It takes a few
//! seconds, ten minutes where `LONG_TESTS` is set, and `SOAK_SECONDS` if that is.

mod datagrams;
mod export;
#[path = "../../../crates/storage/tests/common/ram.rs"]
mod ram;
mod shared;
#[path = "../../../crates/lan/tests/common/space.rs"]
mod space;
mod split;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use datagrams::Datagrams;
use export::Disk;
use shared::Shared;
use space::Space;
use split::Split;
use verbena::low::{BLANK, Wc};
use verbena::{Access, Config, Connection, Cq, Device, Listener, Memory};
use verbena_rsocket::{Flags, Linger, Net, Stream};

/// Threads that connect again and again, of each kind.
const CLIENTS: u64 = 3;
/// One attempt in so many misbehaves.
const HOSTILE: u64 = 20;
/// An MPA Request of revision 1 without private data (RFC 5044 §7.1.1).
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01\0\0";
/// What a process may grow by between two quiet moments, whatever was done in between: buffers of threads, arenas of the allocator.
const SLACK: usize = 24 << 20;
/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_secs(60);

/// Rounds of each kind that were honest and complete, and those of any kind that misbehaved.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    sockets: AtomicU64,
    shared: AtomicU64,
    datagrams: AtomicU64,
    exports: AtomicU64,
    hosts: AtomicU64,
    hostile: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// What the process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    resident: usize,
}

impl Held {
    fn now() -> Held {
        let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next());
        Held {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            resident: resident.unwrap().parse::<usize>().unwrap() << 10,
        }
    }
}

/// Clears a flag when it is dropped, also by a client that panics: servers must end for the test to fail.
struct Clear<'a>(&'a AtomicBool);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Both sides, which stay from the first phase to the last.
struct World {
    client: Device,
    listener: Listener,
    memory: Memory,
    net: std::sync::Arc<Net>,
    sockets: Stream,
    shared: Shared,
    datagrams: Datagrams,
    disk: Disk,
    /// None where no TAP interface can be made.
    split: Option<Split>,
    counts: Counts,
}

fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    // What misbehaves is found out soon.
    config.set("startup_timeout", "1s").unwrap();
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
            net: Net::open(device(&[])),
            sockets,
            shared: Shared::new(),
            datagrams: Datagrams::new(),
            disk: Disk::new(CLIENTS),
            split,
            counts: Counts::default(),
        }
    }

    /// Everything at once, for so long; nothing of it is left when this returns.
    fn run(&self, time: Duration, seed: u64) {
        let (clients, servers) = (AtomicBool::new(true), AtomicBool::new(true));
        thread::scope(|scope| {
            let _stop = Clear(&servers);
            scope.spawn(|| self.serve(&servers));
            scope.spawn(|| self.serve_sockets(&servers));
            scope.spawn(|| self.shared.serve(&servers));
            scope.spawn(|| self.datagrams.serve(&servers));
            thread::scope(|scope| {
                let (clients, counts) = (&clients, &self.counts);
                for number in 0..CLIENTS {
                    let own = seed << 8 | number;
                    scope.spawn(move || self.connect(clients, number, seed));
                    scope.spawn(move || self.connect_sockets(clients, seed + number));
                    scope.spawn(move || self.shared.connect(clients, counts, own));
                    scope.spawn(move || self.datagrams.exchange(clients, counts, own));
                    scope.spawn(move || self.disk.connect(clients, counts, number, seed));
                    if let Some(split) = &self.split {
                        scope.spawn(move || split.dial(clients, counts, own));
                    }
                }
                if let Some(split) = &self.split {
                    scope.spawn(move || split.drive(clients, counts, seed));
                }
                thread::sleep(time);
                clients.store(false, Ordering::Relaxed);
            });
        });
    }

    fn serve(&self, on: &AtomicBool) {
        thread::scope(|scope| {
            while on.load(Ordering::Relaxed) {
                match self.listener.try_next().unwrap() {
                    None => thread::sleep(Duration::from_millis(1)),
                    Some(request) => drop(scope.spawn(move || {
                        if let Ok(connection) = request.accept(b"").wait() {
                            echo(&connection);
                        }
                    })),
                }
            }
        });
    }

    /// True if this round is one of a peer that misbehaves, which it has done then.
    fn misbehaves(&self, at: SocketAddr, round: u64) -> bool {
        let hostile = is_hostile(round);
        if hostile {
            misbehave(at, mix(round + 1));
            add(&self.counts.hostile);
        }
        hostile
    }

    fn connect(&self, on: &AtomicBool, number: u64, seed: u64) {
        let at = self.listener.local().unwrap();
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
        }
    }

    /// A message there and back, a write that is read again, an atomic; or an end in the middle of it.
    fn use_connection(&self, connection: &Connection, number: u64, round: u64, left: bool) {
        let len = 1 + mix(round + 3) as usize % 40_000;
        let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ round) as u8).collect();
        // What is on its way when a connection is dropped may be placed after the next one has written: it has a slot of its own.
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
            while on.load(Ordering::Relaxed) {
                let Ok(socket) = self.sockets.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
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
            }
        });
    }

    fn connect_sockets(&self, on: &AtomicBool, seed: u64) {
        let at = self.sockets.local().unwrap();
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
                // An end in the middle: with a reset, or without.
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

    /// Closed sockets have left, and nothing is under way.
    fn settle(&self) {
        assert!(
            self.net.wait_closed(Instant::now() + LIMIT),
            "sockets leave"
        );
        if let Some(split) = &self.split {
            split.settle();
        }
    }
}

/// Answers every message with itself.
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

/// One peer that does not do what it should, for at most a moment.
fn misbehave(at: SocketAddr, how: u64) {
    let Ok(mut raw) = TcpStream::connect(at) else {
        return;
    };
    raw.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let garbage: Vec<u8> = (0..300_u64).map(|at| mix(at ^ how) as u8).collect();
    let reply = |raw: &mut TcpStream| drop(raw.read(&mut [0; 64]));
    // The server may hang up at any byte.
    let _ = match how % 7 {
        // Silent.
        0 => {
            thread::sleep(Duration::from_millis(50));
            Ok(())
        }
        1 => raw.write_all(&garbage),
        // Half a request; a request, and gone; a request, and nothing that follows.
        2 => raw.write_all(&REQUEST[..9]),
        3 => raw.write_all(REQUEST),
        4 => raw.write_all(REQUEST).map(|()| reply(&mut raw)),
        // Frames that are none.
        5 => raw.write_all(REQUEST).and_then(|()| {
            reply(&mut raw);
            raw.write_all(&garbage)
        }),
        // The beginning of TLS.
        _ => raw.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
    };
}

/// Numbers that look random and are the same in every run.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

/// The round is one of a peer that misbehaves.
fn is_hostile(round: u64) -> bool {
    mix(round).is_multiple_of(HOSTILE)
}

/// So many completions.
fn completions(cq: &Cq, count: usize) -> Vec<Wc> {
    let (mut all, mut some) = (Vec::new(), [BLANK; 16]);
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
fn soak_leaves_nothing_behind() {
    // The split driver needs interfaces; where none can be made, the rest is run without it. Threads stay in the namespace of the
    // one that made them.
    let ran = space::privileged("soak_leaves_nothing_behind", || {
        Space::new().run(|| soak(Some(Split::new())));
    });
    if !ran {
        soak(None);
    }
}

fn soak(split: Option<Split>) {
    let time = duration();
    let world = World::new(split);
    // What the first connections make stays: threads, rings, arenas of the allocator.
    world.run(time / 4, 1);
    world.settle();
    let before = quiet(|_| false);
    let known = descriptors();
    world.run(time - time / 4, 2);
    world.settle();
    let same = |held: Held| {
        held.descriptors <= before.descriptors
            && held.threads <= before.threads
            && held.resident <= before.resident + SLACK
    };
    let after = quiet(same);
    let counts = &world.counts;
    println!("{time:?}: {counts:?}; {before:?}, then {after:?}");
    let mut new = descriptors();
    new.retain(|one| !known.contains(one));
    assert!(same(after), "{before:?}, then {after:?}; new: {new:#?}");
    assert!(counts.hostile.load(Ordering::Relaxed) > 0);
}

/// What each descriptor is, sorted, for a look at those that are too many.
fn descriptors() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    links.sort();
    links
}

/// What the process holds when that satisfies, or has not changed for longer than any of the limits that are set here.
fn quiet(satisfies: impl Fn(Held) -> bool) -> Held {
    let end = Instant::now() + LIMIT;
    let (mut last, mut since) = (Held::now(), Instant::now());
    loop {
        thread::sleep(Duration::from_millis(100));
        let held = Held::now();
        if satisfies(held) || Instant::now() >= end {
            return held;
        }
        if (held.descriptors, held.threads) != (last.descriptors, last.threads) {
            (last, since) = (held, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(3) {
            return held;
        }
    }
}
