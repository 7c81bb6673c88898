//! Connections that migrate between functions under traffic in both directions: nothing lost, duplicated or reordered (V1).
//!
//! The client's side is an ordinary program. Every completion of both sides is checked, every byte is
//! compared, and the values before an atomic addition must be consecutive.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use verbena::handover::{Handover, HandoverListener, IncomingHandover};
use verbena::low::{
    self, Cq, Data, Pd, Qp, QpOptions, QpState, RecvWr, RemoteAddr, SendOp, SendWr, Wc,
};
use verbena::{Access, Device, Memory, Status};

use crate::common::low::{SEND, connect_qps, wr};
use crate::common::{LOOPBACK, device, virtual_function};

/// Outstanding messages.
const WINDOW: u64 = 8;
/// The longest message.
const MAX_LEN: usize = 40_000;
/// Bytes of the server's memory per outstanding message: for writes, for the receive, for the echo.
const SLOT: usize = 3 * MAX_LEN;

/// Message `n`, which begins with its number; its length depends on `n`.
fn message(n: u64) -> Vec<u8> {
    let len = match n % 5 {
        0 => 8,
        1 => 100,
        2 => MAX_LEN - (n as usize % 1000),
        3 => 9000,
        _ => 64 + (n as usize * 37) % 3000,
    };
    let mut bytes: Vec<u8> = (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ n as u8)
        .collect();
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn assert_success(wc: &Wc) {
    assert_eq!(wc.status, Status::Success, "{wc:?}");
}

/// The side that migrates: echoes every message; writes, reads and atomics are one-sided.
struct Server {
    qp: Qp,
    cq: Cq,
    /// The functions it can be in; it is in the first. If this is empty, each move is a handover to a new device.
    functions: Vec<(Device, Pd)>,
    memory: Memory,
    expected: u64,
    /// The times of its moves.
    move_times: Vec<Instant>,
}

impl Server {
    fn receive(&self, slot: u64) {
        let at = slot as usize * SLOT + MAX_LEN;
        let scatter = [self.memory.sge(at, MAX_LEN).unwrap()];
        let id = slot;
        self.qp
            .post_recv(&[RecvWr {
                id,
                scatter: &scatter,
            }])
            .unwrap();
    }

    /// Answers what has arrived; returns whether anything has.
    fn serve(&mut self) -> bool {
        let mut some = [Wc::default(); 16];
        let n = self.cq.poll(&mut some);
        for wc in &some[..n] {
            assert_success(wc);
            assert_eq!(wc.qpn, self.qp.number());
            if wc.id >= WINDOW {
                continue;
            }
            let (slot, len) = (wc.id, wc.len as usize);
            let at = slot as usize * SLOT + MAX_LEN;
            let mut got = vec![0; len];
            self.memory.read_at(at, &mut got).unwrap();
            assert!(got == message(self.expected), "message {}", self.expected);
            self.memory.write_at(at + MAX_LEN, &got).unwrap();
            let echo = [self.memory.sge(at + MAX_LEN, len).unwrap()];
            self.receive(slot);
            let reply = wr(WINDOW + slot, SEND, Data::Gather(&echo));
            self.qp.post_send(&[reply]).unwrap();
            self.expected += 1;
        }
        n > 0
    }

    fn migrate(self) -> Server {
        if self.functions.is_empty() {
            self.hand_over()
        } else {
            self.change_function()
        }
    }

    /// As if the successor were another process: only bytes and descriptors are passed.
    fn hand_over(self) -> Server {
        let Server {
            qp,
            cq: _before,
            functions: homes,
            memory,
            expected,
            move_times: mut moved,
        } = self;
        // Tests run concurrently: each handover has its own path.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-moving-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        moved.reserve(1);
        let handover_listener = HandoverListener::bind(&path).unwrap();
        let sender = std::thread::spawn(move || {
            let device = device(LOOPBACK);
            let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
            let mut inheritance = IncomingHandover::connect(&path).unwrap();
            let memory = inheritance.memory(1, &pd).unwrap();
            let qp = inheritance.qp(1, &pd, &cq, &cq, None).unwrap();
            inheritance.accept(&device, |_| ()).unwrap();
            (qp, cq, memory)
        });
        let wait = Duration::from_secs(10);
        let come = handover_listener.accept(wait).unwrap().unwrap();
        let mut handover = Handover::default();
        handover.memory(1, memory).qp(1, qp);
        moved.push(Instant::now());
        come.send(handover, |_| ()).unwrap();
        let (qp, cq, memory) = sender.join().unwrap();
        Server {
            qp,
            cq,
            functions: homes,
            memory,
            expected,
            move_times: moved,
        }
    }

    fn change_function(mut self) -> Server {
        self.functions.rotate_left(1);
        let (device, pd) = &self.functions[0];
        let cq = device.cq(256).unwrap();
        self.move_times.push(Instant::now());
        let qp = self.qp.migrate(pd, &cq, &cq, None).unwrap();
        Server { qp, cq, ..self }
    }
}

/// What the client observed.
struct ClientReport {
    messages: u64,
    /// The time of each echo, and its distance to the one before.
    echoes: Vec<(Instant, Duration)>,
}

/// The side that stays: four requests per message, `WINDOW` messages outstanding.
fn client(
    qp: &Qp,
    cq: &Cq,
    memory: &Memory,
    remote: &RemoteAddr,
    stop: &AtomicBool,
) -> ClientReport {
    let (mut sent, mut echoed, mut added) = (0, 0, 0_u64);
    let mut open = [0_u32; WINDOW as usize];
    let mut echoes = Vec::new();
    let mut last = Instant::now();
    let at = |slot: u64, part: usize| slot as usize * 4 * MAX_LEN + part * MAX_LEN;
    let there = |slot: u64| RemoteAddr {
        to: remote.to.checked_add(slot * SLOT as u64).unwrap(),
        ..*remote
    };
    let counter = RemoteAddr {
        to: remote.to.checked_add(WINDOW * SLOT as u64).unwrap(),
        ..*remote
    };
    let mut some = [Wc::default(); 16];
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while !stopping && sent < echoed + WINDOW && open[(sent % WINDOW) as usize] == 0 {
            let (slot, bytes) = (sent % WINDOW, message(sent));
            memory.write_at(at(slot, 0), &bytes).unwrap();
            let out = [memory.sge(at(slot, 0), bytes.len()).unwrap()];
            let back = [memory.sge(at(slot, 1), bytes.len()).unwrap()];
            let echo = [memory.sge(at(slot, 2), MAX_LEN).unwrap()];
            let word = [memory.sge(at(slot, 3), 8).unwrap()];
            let receive = RecvWr {
                id: slot,
                scatter: &echo,
            };
            qp.post_recv(&[receive]).unwrap();
            let write = SendOp::Write {
                remote: there(slot),
                immediate: None,
            };
            let read = SendOp::Read {
                remote: there(slot),
                local_invalidate: None,
            };
            let add = SendOp::FetchAdd {
                remote: counter,
                add: 1,
                mask: 0,
            };
            let requests: [SendWr<'_>; 4] = [
                wr(100 + slot, write, Data::Gather(&out)),
                wr(200 + slot, read, Data::Gather(&back)),
                wr(300 + slot, add, Data::Gather(&word)),
                wr(400 + slot, SEND, Data::Gather(&out)),
            ];
            qp.post_send(&requests).unwrap();
            open[slot as usize] = 5;
            sent += 1;
        }
        if stopping && open.iter().all(|n| *n == 0) {
            break;
        }
        let n = cq.poll(&mut some);
        // Ends the test if the server has failed.
        assert!(last.elapsed() < Duration::from_secs(60), "no answer");
        for wc in &some[..n] {
            assert_success(wc);
            let slot = wc.id % 100;
            open[slot as usize] -= 1;
            match wc.id / 100 {
                0 => {
                    let expected = message(echoed);
                    assert_eq!(slot, echoed % WINDOW, "out of order");
                    let mut got = vec![0; wc.len as usize];
                    memory.read_at(at(slot, 2), &mut got).unwrap();
                    assert!(got == expected, "echo {echoed}");
                    echoed += 1;
                    let now = Instant::now();
                    echoes.push((now, now - last));
                    last = now;
                }
                2 => {
                    let mut got = vec![0; wc.len as usize];
                    memory.read_at(at(slot, 1), &mut got).unwrap();
                    let number = u64::from_le_bytes(got[..8].try_into().unwrap());
                    assert!(got == message(number), "read of {number}");
                    assert_eq!(number % WINDOW, slot);
                }
                3 => {
                    assert_eq!(
                        memory.load(at(slot, 3)).unwrap(),
                        added,
                        "added twice, or not"
                    );
                    added += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!((sent, added), (echoed, echoed), "something is missing");
    ClientReport {
        messages: echoed,
        echoes,
    }
}

/// Where a server moves to.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Functions,
    /// Devices that share nothing, by a handover.
    Devices,
}

/// Moves a server `moves` times while a client uses it, and prints how long the client waited.
fn migrations(moves: u64, where_to: Target, settings: &[(&str, &str)]) {
    let settings = [LOOPBACK, settings].concat();
    let (peer, adapter) = (device(&settings), device(&settings));
    let homes: Vec<(Device, Pd)> = [
        adapter.clone(),
        virtual_function(&adapter),
        virtual_function(&adapter),
    ]
    .into_iter()
    .map(|home| (home.clone(), home.pd().unwrap()))
    .collect();
    let (pd, cq) = (homes[0].1.clone(), adapter.cq(256).unwrap());
    let len = WINDOW as usize * SLOT + 8;
    let (memory, homes) = match where_to {
        Target::Functions => (pd.memory(len, Access::ALL), homes),
        Target::Devices => (pd.shared_memory(len, Access::ALL), Vec::new()),
    };
    let memory = memory.unwrap();
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    qp.modify(QpState::Init).unwrap();
    let mut server = Server {
        qp,
        cq,
        functions: homes,
        memory,
        expected: 0,
        move_times: Vec::new(),
    };
    for slot in 0..WINDOW {
        server.receive(slot);
    }
    let (client_pd, client_cq) = (peer.pd().unwrap(), peer.cq(256).unwrap());
    let client_qp = Qp::new(&client_pd, &client_cq, &client_cq, QpOptions::default()).unwrap();
    let listener = adapter.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &client_qp, &server.qp);
    let client_memory = client_pd
        .memory(WINDOW as usize * 4 * MAX_LEN, Access::ALL)
        .unwrap();
    let whole = server.memory.sge(0, 8).unwrap();
    let remote = RemoteAddr {
        stag: whole.stag,
        to: low::To::new(whole.addr),
    };
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (seen, server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let seen = client(&client_qp, &client_cq, &client_memory, &remote, &stop);
            over.store(true, Ordering::Relaxed);
            seen
        });
        let mut served = 0_u64;
        while !over.load(Ordering::Relaxed) && !client.is_finished() {
            if server.serve() {
                served += 1;
            }
            let moved = server.move_times.len() as u64;
            if moved < moves && served >= 3 {
                server = server.migrate();
                served = 0;
            }
            if moved == moves && served >= 3 {
                stop.store(true, Ordering::Relaxed);
            }
        }
        (client.join().unwrap(), server)
    });
    assert!(seen.messages >= moves, "{} messages", seen.messages);
    // The effect of a move on the peer: how long it waited for the first echo after it.
    let first_after = |moved: &Instant| seen.echoes.iter().find(|(came, _)| came > moved);
    let mut pauses: Vec<Duration> = server
        .move_times
        .iter()
        .filter_map(first_after)
        .map(|(_, gap)| *gap)
        .collect();
    pauses.sort();
    let mut gaps: Vec<Duration> = seen.echoes.iter().map(|(_, gap)| *gap).collect();
    gaps.sort();
    println!(
        "{moves} moves, {} messages: pause median {:?}, worst {:?}; without a move median {:?}",
        seen.messages,
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
        gaps[gaps.len() / 2],
    );
}

fn move_count() -> u64 {
    if std::env::var_os("LONG_TESTS").is_some() {
        1000
    } else {
        100
    }
}

#[test]
fn migration_is_lossless() {
    migrations(move_count(), Target::Functions, &[]);
}

#[test]
fn migration_with_crc_and_small_fpdus_is_lossless() {
    migrations(
        move_count(),
        Target::Functions,
        &[("crc", "on"), ("fpdu", "mss")],
    );
}

#[test]
fn migration_without_extensions_is_lossless() {
    migrations(
        move_count(),
        Target::Functions,
        &[("extensions", "off"), ("rfc7306", "on")],
    );
}

#[test]
fn handover_is_lossless() {
    migrations(move_count(), Target::Devices, &[]);
}

#[test]
fn handover_with_crc_and_small_fpdus_is_lossless() {
    migrations(
        move_count(),
        Target::Devices,
        &[("crc", "on"), ("fpdu", "mss")],
    );
}

#[test]
fn handover_without_extensions_is_lossless() {
    migrations(
        move_count(),
        Target::Devices,
        &[("extensions", "off"), ("rfc7306", "on")],
    );
}
