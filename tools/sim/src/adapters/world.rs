//! The state of a run of adapters: the fabric, the objects of the programs, the generators, and the record that is kept for the checkers.
//! How it changes is in the other files of this folder, each with its own part of `World`'s methods. Generators are separate, so that a
//! new kind of event does not change the runs of existing seeds.

use std::sync::Arc;

use verbena_mem::{Buffer, WindowType};
use verbena_nic::qp::QpAccessFlags;
use verbena_nic::{Cq, Srq};
use verbena_wire::Stag;

use super::record::{Fault, Record};
use crate::fabric::{ConnectionId, Fabric, HostId, QpId};
use crate::rng::{Ratio, Rng};

/// Derives the seed of another generator.
const EXTRA_SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Derives a second one.
const MIGRATION_SEED: u64 = 0xC2B2_AE3D_27D4_EB4F;
/// Derives a third one.
const TOUCH_SEED: u64 = 0x1656_67B1_9E37_79F9;
/// Derives a fourth one.
const CELL_SEED: u64 = 0x27D4_EB2F_1656_67C5;
/// Derives a fifth one.
const PACKET_SEED: u64 = 0x85EB_CA77_C2B2_AE63;

/// A run of adapters.
#[derive(Debug)]
pub(super) struct World {
    pub(super) fabric: Fabric,
    pub(super) rng: Rng,
    pub(super) record: Record,
    pub(super) hosts: Vec<HostId>,
    pub(super) srqs: Vec<Arc<Srq>>,
    pub(super) cqs: Vec<Arc<Cq>>,
    /// The queue pairs, as the record numbers them.
    pub(super) ids: Vec<QpId>,
    /// The connections, as the record numbers pairs.
    pub(super) connections: Vec<ConnectionId>,
    /// Whether immediate data and atomics (RFC 7306) are allowed, by pair.
    pub(super) rfc7306: Vec<bool>,
    pub(super) regions: Vec<LiveRegion>,
    pub(super) windows: Vec<Window>,
    /// Counters and the bits used of each: host, location, bits.
    pub(super) counters: Vec<(usize, (usize, usize), u32)>,
    /// Programs sometimes omit receives for peers that do not wait.
    pub(super) starving: bool,
    /// Queue pairs that raised `SqDrained` since they were asked to drain.
    pub(super) drained: Vec<u32>,
    /// Queue pairs that raised an event of failure since the last check.
    pub(super) failure_events: Vec<u32>,
    /// Generator for what [`super::probabilities`] names, and for nothing else.
    pub(super) extra_rng: Rng,
    /// Generator for connections that move, and for nothing else.
    pub(super) migration_rng: Rng,
    /// Generator for one-touch windows (M9), for the same reason.
    pub(super) touch_rng: Rng,
    /// Generator for RoCEv2 connections; `None` in runs over byte streams.
    pub(super) packet_rng: Option<Rng>,
    /// Set if cells are used.
    pub(super) cells: Option<Cells>,
    /// Whether the rarer faults happen.
    pub(super) has_rare_faults: bool,
    /// Whether peers of this host may name windows only, by host.
    pub(super) windows_only: Vec<bool>,
    /// What the peer may do, by queue pair.
    pub(super) enabled: Vec<QpAccessFlags>,
    /// The shared receive queues' limits, as programs know them.
    pub(super) watches: Vec<Watch>,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        World {
            fabric: Fabric::new(rng.draw()),
            rng,
            record: Record::default(),
            hosts: Vec::new(),
            srqs: Vec::new(),
            cqs: Vec::new(),
            ids: Vec::new(),
            connections: Vec::new(),
            rfc7306: Vec::new(),
            regions: Vec::new(),
            windows: Vec::new(),
            counters: Vec::new(),
            starving: false,
            drained: Vec::new(),
            failure_events: Vec::new(),
            extra_rng: Rng::new(seed ^ EXTRA_SEED),
            migration_rng: Rng::new(seed ^ MIGRATION_SEED),
            touch_rng: Rng::new(seed ^ TOUCH_SEED),
            packet_rng: None,
            cells: None,
            has_rare_faults: false,
            windows_only: Vec::new(),
            enabled: Vec::new(),
            watches: Vec::new(),
        }
    }

    /// The run of the same seed in which requests also use cells.
    pub(super) fn with_cells(seed: u64) -> World {
        World {
            cells: Some(Cells::new(seed ^ CELL_SEED)),
            ..World::new(seed)
        }
    }

    /// A run of the seed whose connections use RoCEv2 packets; every second one uses cells.
    pub(super) fn over_roce(seed: u64) -> World {
        let mut rng = Rng::new(seed ^ PACKET_SEED);
        let cells = rng.coin().then(|| Cells::new(rng.draw()));
        World {
            packet_rng: Some(rng),
            cells,
            ..World::new(seed)
        }
    }

    pub(super) fn log(&mut self, line: impl core::fmt::Display) {
        self.record
            .log
            .push(format!("{} {line}", self.fabric.now()));
    }

    /// Records that a fault happened to a pair.
    pub(super) fn record_fault(&mut self, pair: usize, fault: Fault) {
        self.log(format!("pair {pair}: {fault:?}"));
        self.record.pairs[pair].faults.insert(fault);
    }
}

/// The kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zone {
    /// Stays to the end, with all rights.
    Stable,
    /// May be deregistered at any time.
    Transient,
    /// Is accessed through windows only.
    Windowed,
    /// Peers may read it.
    ReadOnly,
    /// Belongs to another domain: no queue pair may access it.
    Foreign,
}

/// A region in use.
#[derive(Debug)]
pub(super) struct LiveRegion {
    pub(super) host: usize,
    pub(super) zone: Zone,
    pub(super) buffer: Buffer,
    pub(super) next: usize,
    pub(super) revoked: Option<Vec<u8>>,
}

impl LiveRegion {
    pub(super) fn image(&self) -> Vec<u8> {
        self.buffer.read(0, self.buffer.len())
    }
}

/// A window of a program.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) host: usize,
    /// The queue pair that binds it, and whose peer uses it.
    pub(super) qp: usize,
    pub(super) stag: Stag,
    pub(super) ty: WindowType,
    pub(super) range: (usize, usize),
    pub(super) len: usize,
    pub(super) zero_based: bool,
    pub(super) next: usize,
    /// Peers may use it.
    pub(super) known: bool,
    /// Its end was requested, or it was accessed more often than it may be.
    pub(super) doubtful: bool,
    pub(super) one_touch: bool,
    pub(super) revoked: Option<Vec<u8>>,
}

/// What is drawn about cells.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) rng: Rng,
    /// Responses are not copied, so requests are held; then only one side of each pair uses cells.
    pub(super) held: bool,
}

impl Cells {
    pub(super) fn new(seed: u64) -> Cells {
        let mut rng = Rng::new(seed);
        let held = rng.chance(Ratio::per_mille(300));
        Cells { rng, held }
    }
}

/// What the program of a shared receive queue knows of its limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Watch {
    /// The limit that is armed; 0 if none is.
    pub(super) armed: usize,
    /// Receives at the last observation.
    pub(super) last: usize,
}
