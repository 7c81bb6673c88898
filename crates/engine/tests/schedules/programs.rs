//! Random programs: two engines, one to three connections between them, and what ends them.
//! The kind of a program is the seed's remainder, so that neighbouring seeds run different kinds.

use core::time::Duration;
use std::sync::Arc;

use verbena_engine::sys::{self, simulated};
use verbena_engine::{FunctionOptions, Listening, OobPeer, QueuePair};
use verbena_nic::{Arm, Personality, QpState};
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::mpsc;

use crate::c_api::CQueuePair;
use crate::host::{Host, Random, loopback};
use crate::traffic::{End, Plan, SLOTS, Traffic};

/// The kinds of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Connections by address.
    Connected,
    /// Connections by queue pair number.
    OutOfBand,
    /// One end migrates to another function under traffic.
    Migrating,
    /// Queue pairs are destroyed while they are being connected.
    Connecting,
}

const KINDS: [Kind; 6] = [
    Kind::Connected,
    Kind::Connecting,
    Kind::OutOfBand,
    Kind::Connecting,
    Kind::Migrating,
    Kind::Connected,
];

fn kind(seed: u64) -> Kind {
    KINDS[(seed % KINDS.len() as u64) as usize]
}

/// The name of a seed's kind.
pub(crate) fn name(seed: u64) -> String {
    format!("{:?}", kind(seed))
}

/// Longer than any timeout of the engines, in virtual time.
const LONG: Duration = Duration::from_secs(120);
/// How often a condition is checked for that long.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Polls of a queue pair's state, at most.
const MAX_POLLS: u32 = 3_000;

/// Steps of a destruction within which its thread is paused.
const DESTROY_STEPS: u64 = 24;

/// What a connection that stays open is reported as.
pub(crate) const OUTLIVES: &str = "a connection outlives its queue pair";

/// Runs the program of this seed.
pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let (a, b) = (Host::new(&mut random), Host::new(&mut random));
    let hosts = [Arc::new(a), Arc::new(b)];
    let apis = hosts.each_ref().map(|host| host.c_api.clone());
    match kind(seed) {
        Kind::Connecting => {
            for _ in 0..1 + random.below(3) {
                connecting(&hosts, &mut random);
            }
        }
        kind => traffic(&hosts, &mut random, kind),
    }
    // A connection without a queue pair closes by itself.
    assert!(comes_true(|| simulated::open_streams() == 0), "{OUTLIVES}");
    // The engines have ended: no callback runs any more.
    drop(hosts);
    for api in apis {
        api.check();
    }
}

/// Waits for a condition, in virtual time; false if it does not come true.
fn comes_true(condition: impl Fn() -> bool) -> bool {
    let until = sys::now() + LONG;
    while !condition() {
        if sys::now() >= until {
            return false;
        }
        sys::sleep(CHECK_INTERVAL);
    }
    true
}

fn spawn(work: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    shuttle::thread::spawn(work)
}

fn traffic(hosts: &[Arc<Host>; 2], random: &mut Random, kind: Kind) {
    let count = 1 + random.below(2) * random.below(2);
    let shuts_down = count == 1 && kind != Kind::Migrating && random.one_in(4);
    let mut ends = Vec::new();
    let mut helpers = Vec::new();
    let done = Arc::new(AtomicBool::new(false));
    for _ in 0..count {
        let [a, b] = hosts;
        let [a, b] = [a, b].map(|host| Arc::new(host.beside()));
        let oob = kind == Kind::OutOfBand;
        let personality = match random.below(2) {
            0 if !oob => Personality::Iwarp,
            _ => Personality::Roce,
        };
        let plans = plans(random, shuts_down, personality, oob);
        let [ours, theirs] = if oob {
            connect_by_number(&a, &b, random)
        } else {
            connect(&a, &b, personality)
        };
        let mut first = Traffic::new(&a, ours, &b, plans[0], random.fork());
        let second = Traffic::new(&b, theirs, &a, plans[1], random.fork());
        if kind == Kind::Migrating {
            let function = a.engine.add_function(&FunctionOptions::default());
            let other = Arc::new(Host::of(function.unwrap()));
            first.migrates_to(&other);
        }
        if random.one_in(2) {
            helpers.push(helper(&b, &done, random.fork()));
        }
        ends.push((first, plans[1].leave_after.is_some()));
        ends.push((second, plans[0].leave_after.is_some()));
    }
    let (finished, results) = mpsc::channel();
    let mut threads = Vec::new();
    for (mut end, peer_left) in ends {
        let finished = finished.clone();
        threads.push(spawn(move || {
            end.run();
            finished.send((end, peer_left)).unwrap();
        }));
    }
    drop(finished);
    let ends: Vec<(Traffic, bool)> = results.iter().collect();
    done.store(true, Ordering::Release);
    for thread in threads.into_iter().chain(helpers) {
        thread.join().unwrap();
    }
    for (end, peer_left) in &ends {
        end.check(*peer_left);
    }
    let alive = |host: &&Arc<Host>| shuts_down || host.engine.remaining_shares().is_ok();
    assert!(hosts.iter().all(|host| alive(&host)), "an engine failed");
}

/// What the two ends do.
fn plans(random: &mut Random, shuts_down: bool, personality: Personality, oob: bool) -> [Plan; 2] {
    // With iWARP a message without a receive ends the connection: not more than are posted at the beginning.
    let most = match personality {
        Personality::Iwarp => SLOTS,
        Personality::Roce => 2 * SLOTS,
    };
    let least = u64::from(oob);
    let counts = [0; 2].map(|_| least + random.below(most + 1 - least));
    let mut plan = |own: usize| Plan {
        sends: counts[own],
        receives: counts[1 - own],
        meets_first: oob,
        told_by_event: personality == Personality::Roce,
        leave_after: random.one_in(3).then(|| random.below(4)),
        end: match random.below(4) {
            0 if shuts_down => End::Shutdown,
            0 | 1 => End::Destroy,
            2 => End::Error,
            _ => End::Disconnect,
        },
    };
    [plan(0), plan(1)]
}

/// Serves the connections of a queue, and arms it, beside the thread that takes its completions.
fn helper(
    host: &Arc<Host>,
    done: &Arc<AtomicBool>,
    mut random: Random,
) -> shuttle::thread::JoinHandle<()> {
    let (host, done) = (host.clone(), done.clone());
    spawn(move || {
        while !done.load(Ordering::Acquire) {
            for _ in 0..random.below(20) {
                host.cq.peek();
            }
            if random.one_in(4) {
                host.cq.arm(Arm::Next);
            }
            sys::sleep(Duration::from_micros(1 + random.below(2000)));
        }
    })
}

fn connect(a: &Host, b: &Host, personality: Personality) -> [QueuePair; 2] {
    let (ours, theirs) = (
        a.queue_pair(personality, false),
        b.queue_pair(personality, false),
    );
    let listener = b.engine.listen(loopback(), 4).unwrap();
    let (done, notified) = mpsc::channel();
    let both = [done.clone(), done];
    let [ask, answer] = both.map(|done| {
        move |result: Result<Vec<u8>, verbena_engine::Error>| {
            done.send(result.map(drop)).unwrap();
        }
    });
    ours.connect(listener.local_addr().unwrap(), b"hello", ask)
        .unwrap();
    let incoming = listener.next().unwrap().unwrap();
    assert_eq!(incoming.private_data(), b"hello");
    incoming.accept(&theirs, b"welcome", answer).unwrap();
    for _ in 0..2 {
        notified.recv().unwrap().unwrap();
    }
    [ours, theirs]
}

fn connect_by_number(a: &Host, b: &Host, random: &mut Random) -> [QueuePair; 2] {
    let pairs = [a, b].map(|host| host.queue_pair(Personality::Roce, true));
    let numbers = [0, 1].map(|at: usize| pairs[at].oob_qpn().unwrap());
    let first = random.below(2) as usize;
    for own in [first, 1 - first] {
        let qp = &pairs[own];
        qp.modify(QpState::Init).unwrap();
        let ip = loopback().ip();
        qp.set_peer(OobPeer {
            local: ip,
            address: ip,
            number: numbers[1 - own],
        })
        .unwrap();
        qp.modify(QpState::Rts).unwrap();
    }
    pairs
}

/// Connects two queue pairs and destroys one or both at a random moment.
fn connecting(hosts: &[Arc<Host>; 2], random: &mut Random) {
    let [a, b] = hosts;
    let listener = Arc::new(b.engine.listen(loopback(), 4).unwrap());
    let to = listener.local_addr().unwrap();
    // One of them may stay until the other has left: mostly the one that accepts, since the other one is connected by another thread.
    let stays = [0, 1, 2, 2][random.below(4) as usize];
    let dials = {
        let (a, mut random) = (a.clone(), random.fork());
        spawn(move || {
            let qp = a.c_api.add(a.queue_pair(Personality::Iwarp, false));
            let (done, notified) = mpsc::channel();
            let connected = connected(&qp, done);
            qp.qp.connect(to, b"hello", connected).unwrap();
            leave(&a, qp, &notified, stays == 1, &mut random);
        })
    };
    let accepts = {
        let (b, mut random) = (b.clone(), random.fork());
        spawn(move || accept_one(&b, &listener, stays == 2, &mut random))
    };
    dials.join().unwrap();
    accepts.join().unwrap();
}

/// The callback of a connect or accept.
fn connected(
    qp: &CQueuePair,
    done: mpsc::Sender<bool>,
) -> impl FnOnce(Result<Vec<u8>, verbena_engine::Error>) + Send + 'static {
    let state = qp.state_ref();
    move |result| {
        if result.is_ok() {
            state.publish_state();
        }
        // The receiver is gone if the program does not wait.
        let _ = done.send(result.is_ok());
    }
}

fn accept_one(b: &Host, listener: &Listening, stays: bool, random: &mut Random) {
    // The dialling program may have left before its request arrived. A sleep is rare: while another thread runs, its time takes many steps.
    let until = sys::now() + Duration::from_millis(10);
    let mut polls = 0_u32;
    let incoming = loop {
        if let Some(incoming) = listener.try_next().unwrap() {
            break incoming;
        }
        if sys::now() >= until {
            return;
        }
        polls += 1;
        let pause = if polls.is_multiple_of(256) { 50 } else { 0 };
        sys::sleep(Duration::from_micros(pause));
    };
    let qp = b.c_api.add(b.queue_pair(Personality::Iwarp, false));
    let (done, notified) = mpsc::channel();
    let accepted = incoming.accept(&qp.qp, b"welcome", connected(&qp, done));
    // An error if the peer has left meanwhile.
    if accepted.is_ok() {
        leave(b, qp, &notified, stays, random);
    } else {
        qp.destroy();
    }
}

/// Destroys a queue pair that is being connected: at once, after a while, at the moment at which its connection is there, or when it has been
/// told of it; one that stays does so when its peer has left.
fn leave(
    host: &Host,
    owned: CQueuePair,
    notified: &mpsc::Receiver<bool>,
    stays: bool,
    random: &mut Random,
) {
    if !stays {
        wait_for_moment(&owned.qp, notified, random);
    } else if notified.recv() == Ok(true) {
        let left = comes_true(|| host.is_disconnected(&owned.qp));
        assert!(left, "{OUTLIVES}: the peer's");
    }
    if !stays && random.one_in(2) {
        // In the middle of the destruction.
        simulated::pause_after(random.below(DESTROY_STEPS));
    }
    owned.destroy();
}

/// Waits for the moment at which a queue pair is destroyed.
fn wait_for_moment(qp: &QueuePair, notified: &mpsc::Receiver<bool>, random: &mut Random) {
    match random.below(6) {
        0 => {
            let _ = notified.recv();
        }
        1 => sys::sleep(Duration::from_micros(random.below(100))),
        2 => {
            for _ in 0..random.below(400) {
                sys::sleep(Duration::ZERO);
            }
        }
        _ => {
            // As soon as the startup changes its state, or a few steps later: its connection is bound next.
            let before = qp.state();
            for _ in 0..MAX_POLLS {
                if qp.state() != before || notified.try_recv().is_ok() {
                    break;
                }
                sys::sleep(Duration::ZERO);
            }
            for _ in 0..random.below(2) * random.below(12) {
                sys::sleep(Duration::ZERO);
            }
        }
    }
}
