//! Three switches in a row with ports at each: datagrams travel hop by hop, and each hop may have faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use verbena_split_wire::cell::PortAddress;
use verbena_stream::Time;

use crate::rng::Rng;

/// Faults of every hop, in per mille.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) lose: u64,
    pub(crate) duplicate: u64,
    pub(crate) corrupt: u64,
    /// Upper limit of a hop's random delay in microseconds, which reorders datagrams.
    pub(crate) jitter: u64,
    /// Links are down for a while.
    pub(crate) partition: bool,
    /// One link stays down.
    pub(crate) dead_link: bool,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults {
        lose: 0,
        duplicate: 0,
        corrupt: 0,
        jitter: 0,
        partition: false,
        dead_link: false,
    };
    pub(crate) const BAD: Faults = Faults {
        lose: 30,
        duplicate: 30,
        corrupt: 20,
        jitter: 300,
        partition: true,
        dead_link: false,
    };
    pub(crate) const DEAD_LINK: Faults = Faults {
        dead_link: true,
        ..Faults::BAD
    };
}

pub(crate) const SWITCHES: usize = 3;
/// The address of a node's port.
pub(crate) fn address(node: usize) -> PortAddress {
    PortAddress([2, 0, 0, 0, 0, node as u8])
}

/// The next position of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hop {
    Switch(usize),
    Port(usize),
}

type Flight = Reverse<(Time, u64, Hop, usize, Vec<u8>)>;

/// The simulated network.
#[derive(Debug)]
pub(crate) struct Fabric {
    faults: Faults,
    rng: Rng,
    flights: BinaryHeap<Flight>,
    count: u64,
    /// The interval in which the link behind each switch is down.
    down: [(Time, Time); SWITCHES],
}

impl Fabric {
    pub(crate) fn new(mut rng: Rng, faults: Faults) -> Fabric {
        let mut down = [(Time::MAX, Time::MAX); SWITCHES];
        for (at, link) in down.iter_mut().enumerate() {
            let from = Time::from_nanos(rng.below(40_000_000));
            let long = Time::from_nanos(from.nanos() + rng.below(30_000_000));
            if faults.dead_link && at == 0 {
                *link = (from, Time::MAX);
            } else if faults.partition && rng.chance(500) {
                *link = (from, long);
            }
        }
        Fabric {
            faults,
            rng,
            flights: BinaryHeap::new(),
            count: 0,
            down,
        }
    }

    /// The switch of a node.
    fn switch_of(node: usize) -> usize {
        node % SWITCHES
    }

    /// Sends a datagram of a node.
    pub(crate) fn send(&mut self, now: Time, from: usize, to: PortAddress, bytes: Vec<u8>) {
        let to = usize::from(to.0[5]);
        self.hop(now, Hop::Switch(Fabric::switch_of(from)), to, bytes);
    }

    fn hop(&mut self, now: Time, next: Hop, to: usize, mut bytes: Vec<u8>) {
        if self.rng.chance(self.faults.lose) {
            return;
        }
        if self.rng.chance(self.faults.corrupt) && !bytes.is_empty() {
            let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = if self.rng.chance(self.faults.duplicate) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let micros = 10 + self.rng.below(self.faults.jitter + 1);
            let at = Time::from_nanos(now.nanos() + micros * 1000);
            self.count += 1;
            let flight = (at, self.count, next, to, bytes.clone());
            self.flights.push(Reverse(flight));
        }
    }

    /// When the next datagram reaches its next position.
    pub(crate) fn next(&self) -> Option<Time> {
        self.flights.peek().map(|Reverse((at, ..))| *at)
    }

    /// Moves the next datagram; returns the node and the bytes if it arrived.
    pub(crate) fn step(&mut self) -> Option<(usize, Vec<u8>)> {
        let Reverse((now, _, hop, to, bytes)) = self.flights.pop()?;
        let here = match hop {
            Hop::Port(node) => return Some((node, bytes)),
            Hop::Switch(here) => here,
        };
        let home = Fabric::switch_of(to);
        let next = match here.cmp(&home) {
            std::cmp::Ordering::Equal => Hop::Port(to),
            std::cmp::Ordering::Less => Hop::Switch(here + 1),
            std::cmp::Ordering::Greater => Hop::Switch(here - 1),
        };
        // The link between two switches belongs to the lower one.
        if let Hop::Switch(there) = next {
            let (from, until) = self.down[here.min(there)];
            if from <= now && now < until {
                return None;
            }
        }
        self.hop(now, next, to, bytes);
        None
    }
}
