//! Peers that die, stop, and continue, at any moment under traffic (docs/connections.md, "Failures").

mod network;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use verbena_nic::Wc;
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{QpState, QpType, Status};

use crate::common::process::{Peer, RECEIVES};
use crate::common::{SEND, Side, dial, pseudo_random, read_from, write_to};

/// Limit of outstanding requests.
const MAX_OUTSTANDING: usize = 48;

/// Through shared memory, and over TCP.
const SAME_HOST: [(&str, &str); 2] = [("same_host", "on"), ("same_host", "off")];

/// Stops the process, and waits until it is stopped.
fn stop(peer: &Peer) {
    peer.signal(Signal::STOP);
    let status = format!("/proc/{}/status", peer.id());
    crate::common::wait("the stop", || {
        let status = std::fs::read_to_string(&status).unwrap();
        status.contains("State:\tT")
    });
}

/// Posts work of all kinds, and collects the completions.
struct Traffic<'a> {
    side: &'a Side,
    remote: RemoteAddr,
    /// Sends that may still be posted.
    sends: u64,
    posted: u64,
    ended: Vec<(u64, Status)>,
}

impl Traffic<'_> {
    fn outstanding(&self) -> usize {
        self.posted as usize - self.ended.len()
    }

    fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            while self.outstanding() < MAX_OUTSTANDING && self.side.qp.state() == QpState::Rts {
                let id = self.posted;
                let len = (pseudo_random(id) % 60_000) as usize;
                let sges = [self.side.sge(0, len)];
                let op = match pseudo_random(id + 7) % 3 {
                    0 if self.sends > 0 => {
                        self.sends -= 1;
                        SEND
                    }
                    0 | 1 => write_to(self.remote),
                    _ => read_from(self.remote),
                };
                self.side.post(id, op, &sges);
                self.posted += 1;
            }
            self.collect();
        }
    }

    fn collect(&mut self) {
        let mut some = [Wc::default(); 32];
        let n = self.side.cq.poll(&mut some);
        self.ended
            .extend(some[..n].iter().map(|wc| (wc.id, wc.status)));
    }

    fn drain(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.outstanding() > 0 {
            self.collect();
            assert!(
                Instant::now() < end,
                "{} of {} requests never ended",
                self.outstanding(),
                self.posted
            );
        }
    }
}

fn start_pair(settings: &[(&str, &str)]) -> (Peer, Side, RemoteAddr) {
    let mut peer = Peer::start("target", settings);
    let side = Side::new(settings);
    let (at, remote) = peer.target_info();
    dial(&side.qp, at).unwrap();
    (peer, side, remote)
}

/// The iWARP personality has no flow control for Sends: one without a receive is fatal, and a stopped target
/// posts none in time. There, only as many are sent as it posted in advance.
fn traffic<'a>(side: &'a Side, remote: RemoteAddr, settings: &[(&str, &str)]) -> Traffic<'a> {
    let iwarp = settings.contains(&("personality", "iwarp"));
    Traffic {
        side,
        remote,
        sends: if iwarp { RECEIVES } else { u64::MAX },
        posted: 0,
        ended: Vec::new(),
    }
}

/// All outstanding requests complete: one with the error of the loss, the others flushed, in order.
#[test]
fn killed_peer_fails_all_outstanding_requests() {
    let kinds = [
        (("crc", "off"), Status::RetryExcErr),
        (("crc", "on"), Status::RetryExcErr),
        (("personality", "iwarp"), Status::WrFlushErr),
    ];
    for round in 0..18 {
        let (setting, lost) = kinds[round % kinds.len()];
        let settings = &[setting, SAME_HOST[round / kinds.len() % 2]];
        let (peer, side, remote) = start_pair(settings);
        let mut traffic = traffic(&side, remote, settings);
        traffic.run(Duration::from_micros(pseudo_random(round as u64) % 20_000));
        peer.signal(Signal::KILL);
        traffic.run(Duration::from_micros(
            pseudo_random(round as u64 + 99) % 2_000,
        ));
        traffic.drain(Duration::from_secs(3));
        let ids: Vec<_> = traffic.ended.iter().map(|(id, _)| *id).collect();
        assert!(ids.is_sorted(), "in order");
        let failed = traffic.ended.iter().filter(|(_, s)| *s != Status::Success);
        let failed: Vec<_> = failed.map(|(_, s)| *s).collect();
        if side.qp.state() == QpState::Rts {
            // Nothing was outstanding: only new work notices.
            assert!(failed.is_empty());
            continue;
        }
        let (first, rest) = failed.split_first().unwrap_or((&lost, &[]));
        assert_eq!(*first, lost, "round {round}: {:?}", side.qp.view());
        assert!(rest.iter().all(|s| *s == Status::WrFlushErr), "{rest:?}");
    }
}

/// A stopped process does not read, but its kernel acknowledges: the peer is not dead (docs/connections.md, "Peers that die, stall or fall silent").
#[test]
fn stopped_and_continued_peer_loses_nothing() {
    for round in 0..8_u64 {
        let settings = [
            ("dead_after", "300ms"),
            ("crc", if round % 2 == 0 { "on" } else { "off" }),
            SAME_HOST[round as usize / 2 % 2],
        ];
        let (peer, side, remote) = start_pair(&settings);
        let mut traffic = traffic(&side, remote, &settings);
        traffic.run(Duration::from_micros(pseudo_random(round) % 20_000));
        peer.signal(Signal::STOP);
        // Longer than the time after which a silent peer is dead, in two of the rounds.
        let pause = if round % 3 == 0 { 1_300 } else { 50 };
        traffic.run(Duration::from_millis(pause));
        peer.signal(Signal::CONT);
        traffic.run(Duration::from_millis(20));
        traffic.drain(Duration::from_secs(5));
        let lost: Vec<_> = traffic
            .ended
            .iter()
            .filter(|(_, s)| *s != Status::Success)
            .collect();
        assert!(lost.is_empty(), "{lost:?} {:?}", side.qp.view());
        assert_eq!(side.qp.state(), QpState::Rts);
    }
}

/// docs/connections.md: a stopped program is not dead, but the wait for it is bounded. Here its window is zero, or it has received a
/// small request and does not answer it.
#[test]
fn stalled_after_limits_the_wait_for_a_peer() {
    let small = |side: &Side, remote| side.post(0, read_from(remote), &[side.sge(0, 8)]);
    let large = |side: &Side, remote| {
        (0..40).for_each(|id| side.post(id, write_to(remote), &[side.sge(0, 4 << 20)]));
    };
    let posts: [fn(&Side, RemoteAddr); 2] = [small, large];
    let personalities = SAME_HOST.map(|same_host| [("roce", same_host), ("iwarp", same_host)]);
    for (personality, same_host) in personalities.concat() {
        for post in posts {
            let settings = [
                ("stalled_after", "1s"),
                ("personality", personality),
                same_host,
            ];
            let (peer, side, remote) = start_pair(&settings);
            stop(&peer);
            let began = Instant::now();
            post(&side, remote);
            let status = side.complete(1)[0].status;
            crate::common::wait("the stall is noticed", || side.qp.state() != QpState::Rts);
            let expected: &[Status] = match personality {
                "roce" => &[Status::RetryExcErr],
                _ => &[Status::RetryExcErr, Status::WrFlushErr, Status::Success],
            };
            assert!(expected.contains(&status), "{personality}: {status:?}");
            assert!(began.elapsed() >= Duration::from_secs(1), "too early");
        }
    }
}

/// The same for an unreliable queue pair: its requests succeed, and its connection ends.
#[test]
fn stalled_after_limits_unreliable_connections() {
    for same_host in SAME_HOST {
        let settings = [("stalled_after", "1s"), same_host];
        let mut peer = Peer::start("target", &settings);
        let side = network::side(&settings, QpType::Uc);
        let (at, remote) = peer.target_info();
        dial(&side.qp, at).unwrap();
        stop(&peer);
        let began = Instant::now();
        // More than the buffers between the two hold.
        for id in 0..400 {
            side.post(id, write_to(remote), &[side.sge(0, 64 << 10)]);
        }
        crate::common::wait("the end", || network::is_end_reported(&side));
        assert!(began.elapsed() >= Duration::from_secs(1), "too early");
    }
}

/// Over RoCEv2 the requests themselves tell a queue pair that its peer is gone.
#[test]
fn killed_peer_fails_requests_over_roce() {
    let process = std::process::id() as u8 & 0x7f | 0x40;
    let [here, there] = [1, 2].map(|host| format!("127.{process}.255.{host}"));
    let settings = [("wire", "roce"), ("dead_after", "500ms")];
    let mut peer = Peer::start(
        "target",
        &[&settings[..], &[("device", there.as_str())]].concat(),
    );
    let side = Side::new(&[&settings[..], &[("device", here.as_str())]].concat());
    let (at, remote) = peer.target_info();
    dial(&side.qp, at).unwrap();
    side.receive(9, &[side.sge(0, 64)]);
    side.post(0, write_to(remote), &[side.sge(0, 64)]);
    assert_eq!(side.statuses(1), [(0, Status::Success)]);
    peer.signal(Signal::KILL);
    peer.wait_ended();
    assert_eq!(side.qp.state(), QpState::Rts, "nothing is outstanding");
    for id in 1..4 {
        side.post(id, write_to(remote), &[side.sge(0, 64)]);
    }
    let lost = Status::RetryExcErr;
    let flushed = Status::WrFlushErr;
    let expected = [(1, lost), (2, flushed), (3, flushed), (9, flushed)];
    assert_eq!(side.statuses(4), expected);
}

/// A queue pair that only receives, or is idle, sends a packet that its peer must acknowledge.
#[test]
fn killed_peer_is_noticed_by_receivers_over_roce() {
    let process = std::process::id() as u8 & 0x7f | 0x40;
    let [here, there] = [3, 4].map(|host| format!("127.{process}.255.{host}"));
    let settings = [
        ("wire", "roce"),
        ("keep_alive", "1s"),
        ("dead_after", "500ms"),
    ];
    let mut peer = Peer::start(
        "target",
        &[&settings[..], &[("device", there.as_str())]].concat(),
    );
    let side = network::side(
        &[&settings[..], &[("device", here.as_str())]].concat(),
        QpType::Rc,
    );
    let (at, _) = peer.target_info();
    dial(&side.qp, at).unwrap();
    side.receive(1, &[side.sge(0, 64)]);
    // real time: long enough for probes without an answer to end the connection.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!network::is_end_reported(&side), "the peer answers");
    peer.signal(Signal::KILL);
    peer.wait_ended();
    crate::common::wait("the end", || network::is_end_reported(&side));
    assert_eq!(side.qp.view().receives, 1, "receives stay");
}

/// A queue pair that only receives, or is idle, has no request that could fail.
#[test]
fn killed_peer_is_noticed_by_receivers() {
    let kinds = SAME_HOST.map(|same_host| {
        [
            ("roce", QpType::Rc, same_host),
            ("iwarp", QpType::Rc, same_host),
            ("roce", QpType::Uc, same_host),
        ]
    });
    for (personality, qp_type, same_host) in kinds.concat() {
        let settings = [("personality", personality), same_host];
        let mut peer = Peer::start("target", &settings);
        let side = network::side(&settings, qp_type);
        let (at, _) = peer.target_info();
        dial(&side.qp, at).unwrap();
        side.receive(1, &[side.sge(0, 64)]);
        peer.signal(Signal::KILL);
        crate::common::wait("the end", || network::is_end_reported(&side));
        if personality == "iwarp" {
            assert_eq!(side.statuses(1), [(1, Status::WrFlushErr)]);
        } else {
            assert_eq!(side.qp.view().receives, 1, "receives stay");
        }
    }
}
