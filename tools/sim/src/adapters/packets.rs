//! What is drawn for a run over RoCEv2: the numbers of each connection, and how its links treat packets.
//! It has a generator of its own, so that runs over byte streams do not depend on it.

use core::time::Duration;

use verbena_nic::QpType;
use verbena_roce::{Mtu, Settings};
use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::Psn;

use super::draw::ConnectionParams;
use super::probabilities::{NO_RNR_RETRY, RETRY_LIMITED, RNR_LIMITED};
use super::record::{CellUse, Fault, Pair};
use super::world::World;
use crate::fabric::{PacketConnectOptions, PacketSideOptions};
use crate::packet_link::PacketLinkOptions;
use crate::rng::{Ratio, Rng};

/// Retries that no link of these runs uses up unless it is cut.
const PATIENT: u8 = 60;
/// Packet sequence numbers near which connections begin: the end of the number space, and the half of it.
const EDGES: [u32; 2] = [1 << 24, 1 << 23];
/// One connection in so many loses no packets.
const LOSSLESS: u32 = 3;
/// How far before an edge at most.
const BEFORE_EDGE: u64 = 300;

impl World {
    /// Whether connections of this run use RoCEv2 packets.
    pub(super) fn has_packets(&self) -> bool {
        self.packet_rng.is_some()
    }

    /// The parameters of a connection as the wire of this run allows them: RoCEv2 has no iWARP, and every feature of RC and UC.
    pub(super) fn suit(&self, params: ConnectionParams) -> ConnectionParams {
        if !self.has_packets() {
            return params;
        }
        ConnectionParams {
            roce: [true; 2],
            extensions: true,
            send_imm: true,
            rfc7306: true,
            ..params
        }
    }

    /// A request that writes a cell waits for the reads before it if packets may be lost: a Read that is repeated returns what a later Write
    /// has left (IBTA volume 1, ordering rules of work requests).
    pub(super) fn needs_fence(&self, qp: usize, op: usize) -> bool {
        let writes = |usage: Option<&CellUse>| matches!(usage, Some(CellUse::Write { op: by, .. }) if *by == op);
        let pair = &self.record.pairs[self.record.qps[qp].pair];
        pair.loses_packets && self.record.cells.iter().any(|c| writes(c.uses.last()))
    }

    /// How much longer a step takes: repetitions after a loss need milliseconds.
    pub(super) fn draw_slowness(&mut self) -> u64 {
        match &mut self.packet_rng {
            Some(rng) => rng.pick(&[1, 1, 5, 20]),
            None => 1,
        }
    }

    /// A RoCEv2 connection of queue pair `first` and the next.
    pub(super) fn draw_packets(
        &mut self,
        rng: &mut Rng,
        first: usize,
        params: ConnectionParams,
        pair: &mut Pair,
    ) -> PacketConnectOptions {
        let sides = [0, 1].map(|k| {
            let mut side = draw_side(rng);
            if params.qp_type == QpType::Uc {
                return side;
            }
            if rng.chance(RETRY_LIMITED) {
                side.retry_count = rng.below(4) as u8;
                pair.faults.insert(Fault::RetryLimited);
            }
            if rng.chance(NO_RNR_RETRY) {
                side.rnr_retry = 0;
                self.record.qps[first + k].no_rnr_retry = true;
                pair.faults.insert(Fault::RnrLimited);
            } else if rng.chance(RNR_LIMITED) {
                side.rnr_retry = rng.range(1, 6) as u8;
                self.record.qps[first + k].rnr_limited = true;
                pair.faults.insert(Fault::RnrLimited);
            }
            side
        });
        let is_ipv6 = rng.coin();
        let mtu = rng.pick(&Mtu::ALL);
        let mut links = [0, 1].map(|_| draw_link(rng, is_ipv6));
        // Not drawn, so that the other connections of a kept seed stay what they were.
        if sides[0].psn.get().is_multiple_of(LOSSLESS) {
            links = links.map(without_loss);
        }
        pair.loses_packets = links != links.map(without_loss);
        PacketConnectOptions { mtu, sides, links }
    }
}

/// The same link, on which every packet arrives, and none before one that was sent earlier. Some arrive twice.
fn without_loss(link: PacketLinkOptions) -> PacketLinkOptions {
    PacketLinkOptions {
        loss: Ratio::NEVER,
        reorder: Ratio::NEVER,
        damage: Ratio::NEVER,
        ..link
    }
}

fn draw_psn(rng: &mut Rng) -> Psn {
    let number = if rng.coin() {
        u64::from(rng.pick(&EDGES)) - rng.below(BEFORE_EDGE)
    } else {
        rng.draw()
    };
    Psn::wrapping(number as u32)
}

fn draw_side(rng: &mut Rng) -> PacketSideOptions {
    PacketSideOptions {
        psn: draw_psn(rng),
        reads: rng.range(1, 8) as u8,
        timeout: Duration::from_nanos(4096 << rng.range(11, 14)),
        retry_count: PATIENT,
        rnr_retry: Settings::RNR_FOREVER,
        rnr_timer: RnrTimer::new(rng.range(6, 14) as u8).unwrap_or(RnrTimer::DEFAULT),
        is_lossy: rng.coin(),
        attach_after: Duration::from_micros(rng.pick(&[0, 0, 0, 20, 3000])),
    }
}

fn draw_link(rng: &mut Rng, is_ipv6: bool) -> PacketLinkOptions {
    let micros = Duration::from_micros;
    let mut ratio = |choices: &[u16]| Ratio::per_mille(rng.pick(choices));
    let (loss, repeat) = (ratio(&[0, 0, 5, 30, 150]), ratio(&[0, 0, 10, 60]));
    let (reorder, damage) = (ratio(&[0, 0, 20, 150]), ratio(&[0, 0, 5, 50]));
    let mark = ratio(&[0, 0, 50]);
    let low = rng.pick(&[0, 1, 10, 50]);
    PacketLinkOptions {
        loss,
        repeat,
        reorder,
        reorder_time: micros(rng.pick(&[5, 100, 2000])),
        damage,
        mark,
        latency: (micros(low), micros(low + rng.pick(&[0, 5, 100]))),
        burst: rng.pick(&[1, 3, 16, usize::MAX]),
        is_ipv6,
    }
}
