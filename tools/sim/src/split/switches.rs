//! The switched fabric of a run: two or three cascaded switches that learn the location of ports, and the links between all.
//! Cells travel one by one, each to its destination address, and every fault is drawn from the seed. A switch reads nothing
//! of a cell but its two addresses.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use verbena_split_wire::cell::{Cell, PortAddress};
use verbena_stream::Time;

use crate::rng::{Ratio, Rng};

/// A switch forgets the location of a port after this time, so that a wrong one is corrected.
const AGE: Duration = Duration::from_millis(20);
/// Ports that a switch remembers.
const TABLE: usize = 32;
/// Time on the wire for each byte.
const NANOS_PER_BYTE: u64 = 4;
/// A cell that is overtaken waits up to this many microseconds.
const MAX_DELAY_US: u64 = 400;
/// One in this many of those waits much longer: beyond the end of its connection, if that was short.
const VERY_LATE_ONE_IN: u64 = 40;

/// Probabilities of faults on each link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub(super) lose: Ratio,
    pub(super) duplicate: Ratio,
    pub(super) delay: Ratio,
    pub(super) corrupt: Ratio,
    /// Bytes that wait for a link; more are dropped.
    pub(super) queue: u64,
}

impl Faults {
    pub(super) const NONE: Faults = Faults {
        lose: Ratio::NEVER,
        duplicate: Ratio::NEVER,
        delay: Ratio::NEVER,
        corrupt: Ratio::NEVER,
        queue: 4 << 20,
    };

    pub(super) fn draw(rng: &mut Rng) -> Faults {
        let mut some = |most| Ratio::per_mille(rng.below(most) as u16);
        Faults {
            lose: some(40),
            duplicate: some(40),
            delay: some(100),
            corrupt: some(20),
            queue: rng.pick(&[6 << 10, 24 << 10, 4 << 20]),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneEnd {
    Node(usize),
    Switch(usize),
}

/// One direction of a link; the other has the number with the lowest bit changed.
#[derive(Debug)]
struct Lane {
    to: LaneEnd,
    /// It is busy until then.
    busy_until: Time,
    /// It is down until then.
    down_until: Time,
}

#[derive(Debug, Default)]
struct Switch {
    lanes: Vec<usize>,
    table: BTreeMap<[u8; 6], (usize, Time)>,
}

/// A cell that arrives at the end of a lane.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlightCell {
    at: Time,
    number: u64,
    lane: usize,
    cell: Vec<u8>,
}

/// Counters of the fabric.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) cells: u64,
    pub(super) bytes: u64,
    pub(super) floods: u64,
    pub(super) full: u64,
    pub(super) cut: u64,
    pub(super) partitions: u64,
    pub(super) flips: u64,
}

/// The fabric.
#[derive(Debug)]
pub(super) struct Switches {
    rng: Rng,
    faults: Faults,
    lanes: Vec<Lane>,
    switches: Vec<Switch>,
    /// The lane out of each node.
    up: Vec<usize>,
    in_flight: BinaryHeap<Reverse<InFlightCell>>,
    pub(super) counts: Counts,
}

impl Switches {
    /// Creates switches in a row, and attaches each node to a random one.
    pub(super) fn new(mut rng: Rng, faults: Faults, nodes: usize) -> Switches {
        let count = rng.len(2, 3);
        let mut fabric = Switches {
            faults,
            lanes: Vec::new(),
            switches: (0..count).map(|_| Switch::default()).collect(),
            up: Vec::new(),
            in_flight: BinaryHeap::new(),
            counts: Counts::default(),
            rng,
        };
        for at in 1..count {
            fabric.link(LaneEnd::Switch(at - 1), LaneEnd::Switch(at));
        }
        for node in 0..nodes {
            let at = fabric.rng.len(0, count - 1);
            fabric.up.push(fabric.lanes.len());
            fabric.link(LaneEnd::Node(node), LaneEnd::Switch(at));
        }
        fabric
    }

    fn link(&mut self, a: LaneEnd, b: LaneEnd) {
        for (from, to) in [(a, b), (b, a)] {
            if let LaneEnd::Switch(at) = from {
                self.switches[at].lanes.push(self.lanes.len());
            }
            let (busy, down) = (Time::ZERO, Time::ZERO);
            self.lanes.push(Lane {
                to,
                busy_until: busy,
                down_until: down,
            });
        }
    }

    /// Takes a link down for a while.
    pub(super) fn partition(&mut self, until: Time) {
        let lane = self.rng.len(0, self.lanes.len() - 1);
        for lane in [lane, lane ^ 1] {
            self.lanes[lane].down_until = until;
        }
        self.counts.partitions += 1;
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.faults = Faults::NONE;
        for lane in &mut self.lanes {
            lane.down_until = Time::ZERO;
        }
    }

    /// A node sends a datagram; its cells travel one by one.
    pub(super) fn send(&mut self, node: usize, datagram: &[u8], now: Time) -> Result<(), String> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let (_, len) = Cell::parse(rest).map_err(|e| format!("a port sent a bad cell: {e}"))?;
            let (cell, behind) = rest.split_at(len);
            self.counts.cells += 1;
            self.enqueue(self.up[node], cell.to_vec(), now);
            rest = behind;
        }
        Ok(())
    }

    fn enqueue(&mut self, lane: usize, mut cell: Vec<u8>, now: Time) {
        let Faults {
            lose,
            duplicate: twice,
            delay: late,
            corrupt,
            queue,
        } = self.faults;
        if self.lanes[lane].down_until > now {
            self.counts.cut += 1;
            return;
        }
        if self.rng.chance(lose) {
            return;
        }
        if self.rng.chance(corrupt) {
            let bit = self.rng.len(0, cell.len() * 8 - 1);
            cell[bit / 8] ^= 1 << (bit % 8);
            self.counts.flips += 1;
        }
        let copies = 1 + usize::from(self.rng.chance(twice));
        for _ in 0..copies {
            let free = self.lanes[lane].busy_until.max(now);
            let waits = free.since(now).as_nanos() as u64 / NANOS_PER_BYTE;
            if waits > queue {
                self.counts.full += 1;
                return;
            }
            let took = Duration::from_nanos(cell.len() as u64 * NANOS_PER_BYTE);
            self.lanes[lane].busy_until = free + took;
            let mut micros = 5;
            if self.rng.chance(late) {
                micros += self.rng.below(MAX_DELAY_US);
                if self.rng.below(VERY_LATE_ONE_IN) == 0 {
                    micros += self.rng.below(MAX_DELAY_US * 100);
                }
            }
            self.counts.bytes += cell.len() as u64;
            self.in_flight.push(Reverse(InFlightCell {
                at: free + took + Duration::from_micros(micros),
                number: self.counts.bytes,
                lane,
                cell: cell.clone(),
            }));
        }
    }

    /// When the next cell arrives somewhere.
    pub(super) fn next(&self) -> Option<Time> {
        self.in_flight.peek().map(|Reverse(flight)| flight.at)
    }

    /// Moves the next cell on; returns the node and the cell if it has arrived.
    pub(super) fn step(&mut self) -> Option<(usize, Vec<u8>)> {
        let Reverse(InFlightCell { at, lane, cell, .. }) = self.in_flight.pop()?;
        let here = match self.lanes[lane].to {
            LaneEnd::Node(node) => return Some((node, cell)),
            LaneEnd::Switch(here) => here,
        };
        let back = lane ^ 1;
        let (to, from) = addresses(&cell)?;
        let Switch { lanes, table } = &mut self.switches[here];
        table.retain(|_, (_, learnt)| *learnt + AGE > at);
        if table.len() < TABLE || table.contains_key(&from) {
            table.insert(from, (back, at));
        }
        match table.get(&to) {
            // It came from there.
            Some((out, _)) if *out == back => {}
            Some((out, _)) => {
                let out = *out;
                self.enqueue(out, cell, at);
            }
            None => {
                self.counts.floods += 1;
                for out in lanes.clone().into_iter().filter(|out| *out != back) {
                    self.enqueue(out, cell.clone(), at);
                }
            }
        }
        None
    }
}

/// Destination and source; a cell that is too short for them is dropped.
fn addresses(cell: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let at = |from: usize| cell.get(from..from + 6)?.try_into().ok();
    Some((at(4)?, at(10)?))
}

/// The address of a node's port.
pub(super) fn address(node: usize) -> PortAddress {
    PortAddress([2, 0, 0, 0, 0, node as u8])
}
