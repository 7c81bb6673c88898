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
    let kinds: [(&[(&str, &str)], Status); 3] = [
        (&[("crc", "off")], Status::RetryExcErr),
        (&[("crc", "on")], Status::RetryExcErr),
        (&[("personality", "iwarp")], Status::WrFlushErr),
    ];
    for round in 0..12 {
        let (settings, lost) = kinds[round % kinds.len()];
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
    for round in 0..6_u64 {
        let settings = [
            ("dead_after", "300ms"),
            ("crc", if round % 2 == 0 { "on" } else { "off" }),
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
    for personality in ["roce", "iwarp"] {
        for post in posts {
            let settings = [("stalled_after", "1s"), ("personality", personality)];
            let (peer, side, remote) = start_pair(&settings);
            peer.signal(Signal::STOP);
            let status = format!("/proc/{}/status", peer.id());
            crate::common::wait("the stop", || {
                let status = std::fs::read_to_string(&status).unwrap();
                status.contains("State:\tT")
            });
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

/// A queue pair that only receives, or is idle, has no request that could fail.
#[test]
fn killed_peer_is_noticed_by_receivers() {
    for (personality, qp_type) in [
        ("roce", QpType::Rc),
        ("iwarp", QpType::Rc),
        ("roce", QpType::Uc),
    ] {
        let settings = [("personality", personality)];
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
