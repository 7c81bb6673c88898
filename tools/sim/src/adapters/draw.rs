//! The participants of a run of adapters: hosts, shared queues, and pairs of queue pairs with their links.
//! The seed picks personalities, standard-only sides, unreliable pairs, small completion queues, what is
//! forbidden, and the properties of links. Nothing is posted here.

use core::time::Duration;
use std::sync::Arc;

use verbena_mem::Policy;
use verbena_nic::qp::QpAccessFlags;
use verbena_nic::{Cq, Personality, QpType, Transfer};
use verbena_stream::{RnrRetry, Terms};
use verbena_wire::ext::{Features, RnrTimer};

use super::probabilities::{
    DISABLED, EXTRA_PAIRS, FLIP_RATES, FLIPPING, NO_RNR_RETRY, RARE_FAULTS, SRQ_CONTENTION,
    WINDOWS_ONLY,
};
use super::record::{Fault, Limits, Pair, QueuePair};
use super::world::{Watch, World};
use crate::fabric::{ConnectOptions, QpId, QpOptions, SideOptions};
use crate::link::{Chunks, LinkOptions};
use crate::rng::{Ratio, Rng};

/// The properties of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionParams {
    pub(super) roce: [bool; 2],
    pub(super) extensions: bool,
    pub(super) qp_type: QpType,
    pub(super) send_imm: bool,
    pub(super) rfc7306: bool,
    /// Both sides use the shared receive queues.
    pub(super) shared: bool,
}

impl World {
    /// Creates hosts, their shared queues, and the first connections.
    pub(super) fn populate(&mut self) {
        let hosts = self.rng.len(2, 3);
        for _ in 0..hosts {
            let policy = if self.extra_rng.chance(WINDOWS_ONLY) {
                Policy::WindowsOnly
            } else {
                Policy::Verbs
            };
            let host = self.fabric.host_with(policy);
            self.hosts.push(host);
            self.windows_only.push(policy == Policy::WindowsOnly);
            let depth = self.rng.len(4, 40);
            let srq = self.fabric.srq(depth);
            self.srqs.push(srq);
            self.watches.push(Watch::default());
            self.record.limits.push(Limits::default());
            let size = if self.rng.chance(Ratio::per_mille(60)) {
                self.rng.len(2, 6)
            } else {
                4096
            };
            let cq = self.fabric.cq(size);
            self.cqs.push(cq);
        }
        let pairs = self.rng.len(1, 4);
        for _ in 0..pairs {
            self.pair();
        }
        self.has_rare_faults = self.extra_rng.chance(RARE_FAULTS);
        if self.has_rare_faults && self.extra_rng.chance(SRQ_CONTENTION) {
            for _ in 0..EXTRA_PAIRS {
                let attr = ConnectionParams {
                    roce: [true; 2],
                    extensions: true,
                    qp_type: QpType::Rc,
                    shared: true,
                    ..draw_params(&mut self.extra_rng)
                };
                self.connect_pair([0, 1], attr, None);
            }
        }
    }

    /// Creates and connects two more queue pairs.
    pub(super) fn pair(&mut self) {
        let a = self.rng.below(self.hosts.len() as u64) as usize;
        let step = self.rng.len(1, self.hosts.len() - 1);
        let sides = [a, (a + step) % self.hosts.len()];
        if sides.iter().any(|h| self.fabric.is_dead(self.hosts[*h])) {
            return;
        }
        let attr = draw_params(&mut self.rng);
        self.connect_pair(sides, attr, None);
    }

    /// Connects a queue pair that was reset or closed to a new partner.
    pub(super) fn reconnect(&mut self, old: usize) {
        let host = self.record.qps[old].host;
        let alive = |h: &usize| *h != host && !self.fabric.is_dead(self.hosts[*h]);
        let others: Vec<usize> = (0..self.hosts.len()).filter(alive).collect();
        if others.is_empty() {
            return;
        }
        let partner = self.extra_rng.pick(&others);
        let mut attr = draw_params(&mut self.extra_rng);
        let qp = &self.record.qps[old];
        // Its creation attributes stay; its partner must suit it as in `may_share`.
        let bound = qp.srq.is_some() || !qp.reliable;
        attr.roce = [qp.roce, if bound { qp.roce } else { attr.roce[1] }];
        attr.extensions |= bound;
        attr.qp_type = if qp.reliable { QpType::Rc } else { QpType::Uc };
        self.connect_pair([host, partner], attr, Some(old));
    }

    fn connect_pair(&mut self, sides: [usize; 2], attr: ConnectionParams, reused: Option<usize>) {
        let attr = self.suit(attr);
        let (pair, first) = (self.record.pairs.len(), self.record.qps.len());
        let mut faults = Pair::default();
        let ids = [0, 1].map(|k| {
            let host = sides[k];
            let reused = reused.filter(|_| k == 0);
            let shared = match reused {
                Some(old) => self.record.qps[old].srq,
                None => self.may_share(attr).then_some(host),
            };
            let options = QpOptions {
                personality: if attr.roce[k] {
                    Personality::Roce
                } else {
                    Personality::Iwarp
                },
                qp_type: attr.qp_type,
                send_cq: self.draw_cq(host),
                recv_cq: self.draw_cq(host),
                srq: shared.map(|srq| self.srqs[srq].clone()),
                transfer: Transfer {
                    direct_min: self.rng.pick(&[1, 50, 300, 4096]),
                    lookahead: self.rng.pick(&[1, 20, 64, 1000]),
                    batch: self.rng.pick(&[100, 3000, 1 << 18]),
                    ..self.transfer()
                },
                ..QpOptions::default()
            };
            self.record.qps.push(QueuePair {
                host,
                pair,
                peer: first + 1 - k,
                roce: attr.roce[k],
                extended: attr.extensions,
                acked: attr.extensions && attr.roce[k] && attr.qp_type == QpType::Rc,
                reliable: attr.qp_type == QpType::Rc,
                send_imm: attr.send_imm && attr.extensions,
                packets: self.has_packets(),
                srq: shared,
                sent: Vec::new(),
                received: Vec::new(),
                lossy: [false; 2],
                left: (0, 0),
                undrained: false,
                drains: false,
                ended: None,
                rnr_limited: false,
                no_rnr_retry: false,
                waited: false,
                damage: 0,
                late_completions: 0,
                forgotten: false,
            });
            let id = match reused {
                Some(old) => self.ids[old],
                None => self.fabric.qp_with(self.hosts[host], options),
            };
            self.draw_enabled(id, attr);
            id
        });
        self.ids.extend(ids);
        self.rfc7306.push(attr.rfc7306 || attr.extensions);
        let connection = if let Some(mut rng) = self.packet_rng.take() {
            let connect = self.draw_packets(&mut rng, first, attr, &mut faults);
            self.packet_rng = Some(rng);
            self.log(format!("{connect:?}"));
            self.fabric.connect_packets(ids[0], ids[1], &connect)
        } else {
            let connect = self.draw_connection(attr, first, &mut faults);
            self.fabric.connect_with(ids[0], ids[1], connect)
        };
        self.connections.push(connection);
        self.log(format!("pair {pair}: hosts {sides:?}, {attr:?}"));
        if let Some(old) = reused {
            self.log(format!("qp {first}: is qp {old} again"));
            self.record.reused += 1;
        }
        self.record.pairs.push(faults);
    }

    /// Receives of a peer that does not wait must be posted in time, which a shared queue cannot guarantee.
    fn may_share(&mut self, attr: ConnectionParams) -> bool {
        let patient = attr.roce == [true; 2] && attr.extensions;
        let unreliable = attr.qp_type == QpType::Uc;
        let drawn = (patient || unreliable) && self.rng.chance(Ratio::per_mille(400));
        drawn || attr.shared
    }

    /// Sometimes the peer may not do everything. On an unreliable connection the refusal would not be reported.
    fn draw_enabled(&mut self, id: QpId, attr: ConnectionParams) {
        let mut enabled = QpAccessFlags::default();
        if attr.qp_type == QpType::Rc && self.extra_rng.chance(DISABLED) {
            match self.extra_rng.below(3) {
                0 => enabled.write = false,
                1 => enabled.read = false,
                _ => enabled.atomic = false,
            }
        }
        self.fabric.enable(id, enabled);
        self.enabled.push(enabled);
    }

    fn draw_cq(&mut self, host: usize) -> Option<Arc<Cq>> {
        self.rng.coin().then(|| self.cqs[host].clone())
    }

    fn draw_connection(
        &mut self,
        attr: ConnectionParams,
        first: usize,
        pair: &mut Pair,
    ) -> ConnectOptions {
        let rng = &mut self.rng;
        let mut sides = [0, 1].map(|_| draw_side(rng, attr));
        if !attr.extensions {
            // One side is standard only; which one makes no difference.
            sides[rng.below(2) as usize].terms.extensions = false;
        }
        if rng.chance(Ratio::per_mille(150)) {
            sides[0].rnr_retry = RnrRetry::Times(rng.range(1, 6) as u8);
            pair.faults.insert(Fault::RnrLimited);
            self.record.qps[first].rnr_limited = true;
        }
        let mut links = [0, 1].map(|_| draw_link(rng));
        for (k, side) in sides.iter_mut().enumerate() {
            if self.extra_rng.chance(NO_RNR_RETRY) {
                side.rnr_retry = RnrRetry::Never;
                pair.faults.insert(Fault::RnrLimited);
                self.record.qps[first + k].no_rnr_retry = true;
            }
        }
        if self.extra_rng.chance(FLIPPING) {
            // Only with checksums: without them damage could not be detected.
            sides[0].terms.crc = true;
            for link in &mut links {
                link.flip = Ratio::per_mille(self.extra_rng.pick(&FLIP_RATES));
            }
        }
        ConnectOptions { sides, links }
    }
}

fn draw_params(rng: &mut Rng) -> ConnectionParams {
    let roce = !rng.chance(Ratio::per_mille(350));
    let mixed = rng.chance(Ratio::per_mille(150));
    // iWARP has no unreliable connections.
    let unreliable = roce && !mixed && rng.chance(Ratio::per_mille(180));
    ConnectionParams {
        roce: [roce, roce ^ mixed],
        extensions: rng.chance(Ratio::per_mille(750)),
        qp_type: if unreliable { QpType::Uc } else { QpType::Rc },
        send_imm: rng.chance(Ratio::per_mille(700)),
        rfc7306: rng.chance(Ratio::per_mille(700)),
        shared: false,
    }
}

fn draw_side(rng: &mut Rng, attr: ConnectionParams) -> SideOptions {
    let mut features = Features::from_bits(0);
    if rng.coin() {
        features = features | Features::READ_V2;
    }
    if attr.send_imm {
        features = features | Features::SEND_IMM;
    }
    SideOptions {
        terms: Terms {
            crc: rng.coin(),
            markers: rng.chance(Ratio::per_mille(100)),
            ird: rng.range(1, 8) as u16,
            ord: rng.range(1, 8) as u16,
            ..Terms::default()
        },
        max_ulpdu: rng.pick(&[128, 256, 777, 1400, 9000]),
        rfc7306: attr.rfc7306,
        features,
        rnr_retry: RnrRetry::Forever,
        rnr_timer: RnrTimer::new(rng.range(1, 14) as u8).unwrap_or(RnrTimer::DEFAULT),
    }
}

fn draw_link(rng: &mut Rng) -> LinkOptions {
    let micros = Duration::from_micros;
    let low = rng.pick(&[0, 1, 10, 50]);
    LinkOptions {
        chunks: match rng.below(4) {
            0 => Chunks::Whole,
            1 => Chunks::Fixed(rng.len(20, 1500)),
            2 => Chunks::UpTo(rng.len(20, 200)),
            _ => Chunks::UpTo(rng.len(60, 20_000)),
        },
        window: rng.len(200, 60_000),
        short_write: Ratio::per_mille(rng.pick(&[0, 0, 100, 500])),
        latency: (micros(low), micros(low + rng.pick(&[0, 5, 100]))),
        stall: Ratio::per_mille(rng.pick(&[0, 0, 1, 10])),
        stall_time: micros(rng.range(100, 5_000)),
        flip: Ratio::NEVER,
    }
}
