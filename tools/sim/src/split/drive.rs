//! The course of a run: traffic under faults, recovery, and the return of everything.
//! Hosts die and come back, links go down and up, and connections without a fault are not disturbed (P9). What makes no progress within
//! the time limit is an error.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use verbena_cells::EndReason;
use verbena_push::Arrangement;
use verbena_stream::Time;

use super::accounting::PacketAccounting;
use super::end::{Activity, End};
use super::node::{Node, PairEnd, RunContext};
use super::service_id::ServiceId;
use super::switches::{Faults, Switches};
use crate::rng::{Ratio, Rng};

/// The interval at which programs act.
const TICK: Duration = Duration::from_micros(500);
/// Time limit of the recovery.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(4);
/// Probabilities per tick of a run with faults.
const PARTITION: Ratio = Ratio::per_mille(15);
const KILL_HOST: Ratio = Ratio::per_mille(8);
/// Hosts that die and never come back.
const NEVER_RESTART: Ratio = Ratio::per_mille(300);

/// A service connection that a host always wants.
#[derive(Debug, Clone, Copy)]
struct WantedConnection {
    host: usize,
    unit: usize,
    arrangement: Arrangement,
    /// Not before this time.
    at: Time,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) connections: u32,
    pub(super) packets: u64,
    pub(super) ended: u64,
    pub(super) deaths: u64,
    pub(super) end: Time,
    pub(super) fabric: super::switches::Counts,
}

/// A run.
#[derive(Debug)]
pub(super) struct World {
    rng: Rng,
    fabric: Switches,
    accounting: BTreeMap<u32, PacketAccounting>,
    /// Hosts come first; a dead one has the time at which it comes back.
    nodes: Vec<Result<Node, Time>>,
    hosts: usize,
    wanted: Vec<WantedConnection>,
    /// Cells may be lost.
    faulty: bool,
    partitions: bool,
    deaths: bool,
    died: BTreeSet<usize>,
    /// The hosts end their connections.
    closing: bool,
    now: Time,
    next_tick: Time,
    outcome: Outcome,
}

impl World {
    pub(super) fn new(seed: u64) -> Result<World, String> {
        let mut rng = Rng::new(seed);
        let (hosts, units) = (rng.len(2, 4), rng.len(1, 3));
        let faulty = rng.below(4) > 0;
        let faults = match faulty {
            true => Faults::draw(&mut rng),
            false => Faults::NONE,
        };
        let fabric = Switches::new(rng.fork(), faults, hosts + units);
        let mut nodes = Vec::new();
        for place in 0..hosts + units {
            nodes.push(Ok(Node::new(place, place >= hosts, &mut rng)?));
        }
        let mut wishes = Vec::new();
        for host in 0..hosts {
            for unit in hosts..hosts + units {
                // P5: some of the arrangements, each with a random unit.
                let first = rng.len(0, 2);
                for more in 0..rng.len(1, 3) {
                    wishes.push(WantedConnection {
                        host,
                        unit,
                        arrangement: Arrangement::ALL[(first + more) % 3],
                        at: Time::from_nanos(rng.below(3_000_000)),
                    });
                }
            }
        }
        Ok(World {
            fabric,
            accounting: BTreeMap::new(),
            nodes,
            hosts,
            wanted: wishes,
            faulty,
            partitions: faulty && rng.coin(),
            deaths: rng.coin(),
            died: BTreeSet::new(),
            closing: false,
            now: Time::ZERO,
            next_tick: Time::ZERO,
            outcome: Outcome::default(),
            rng,
        })
    }

    pub(super) fn run(mut self) -> Result<Outcome, String> {
        let trouble = Time::ZERO + Duration::from_millis(self.rng.range(20, 60));
        while self.now < trouble {
            self.step(Activity::Busy)?;
        }
        // P9: after the faults all hosts come back and everything continues.
        self.fabric.heal();
        (self.partitions, self.deaths) = (false, false);
        for end in self.nodes.iter_mut().flatten().flat_map(|n| &mut n.ends) {
            end.reset_progress();
        }
        self.run_until(Activity::Busy, World::makes_progress)?;
        self.faulty = false;
        let nodes = &self.nodes;
        self.died.retain(|host| nodes[*host].is_err());
        self.run_until(Activity::Quiet, |world| world.ends_all(End::is_done))?;
        for accounting in self.current_accounting() {
            accounting.judge()?;
        }
        self.close()?;
        self.run_until(Activity::Quiet, |world| {
            let left = world.nodes.iter().flatten().flat_map(|n| &n.ends).count();
            left == 0 && world.fabric.next().is_none()
        })?;
        self.outcome.packets = self
            .accounting
            .values()
            .map(|accounting| accounting.arrived)
            .sum();
        self.outcome.fabric = self.fabric.counts;
        self.outcome.end = self.now;
        let nodes = self.nodes.into_iter().flatten();
        nodes
            .map(Node::judge)
            .collect::<Result<Vec<()>, String>>()?;
        Ok(self.outcome)
    }

    /// Runs until the condition holds; fails after the time limit.
    fn run_until(&mut self, mood: Activity, is_so: impl Fn(&World) -> bool) -> Result<(), String> {
        let last = self.now + RECOVERY_TIMEOUT;
        while !is_so(self) {
            self.step(mood)?;
            if self.now > last {
                let nodes = self.nodes.iter().flatten();
                let states: Vec<String> = nodes
                    .flat_map(|node| node.ends.iter().map(End::state))
                    .collect();
                return Err(format!("no progress ({mood:?}):\n{}", states.join("\n")));
            }
        }
        Ok(())
    }

    fn ends_all(&self, test: impl Fn(&End) -> bool) -> bool {
        let mut ends = self.nodes.iter().flatten().flat_map(|n| &n.ends);
        ends.all(test)
    }

    /// Whether each wanted connection exists at both ends, and packets arrive in both directions.
    fn makes_progress(&self) -> bool {
        let well = |place: usize, wish: &WantedConnection| {
            let node = self.nodes[place].as_ref().ok()?;
            let like = |n: &ServiceId| {
                (n.host, n.unit, n.arrangement) == (wish.host, wish.unit, wish.arrangement)
            };
            let end = node.ends.iter().find(|end| like(&end.id))?;
            end.makes_progress().then_some(end.id.number)
        };
        self.wanted.iter().all(|wish| {
            let (host, unit) = (well(wish.host, wish), well(wish.unit, wish));
            host.is_some() && host == unit
        })
    }

    /// The accountings of the connections that exist.
    fn current_accounting(&self) -> impl Iterator<Item = &PacketAccounting> {
        let ends = self.nodes.iter().flatten().flat_map(|n| &n.ends);
        let tags = ends.flat_map(|end| [end.id.number * 2, end.id.number * 2 + 1]);
        tags.filter_map(|tag| self.accounting.get(&tag))
    }

    /// The hosts end their connections.
    fn close(&mut self) -> Result<(), String> {
        self.wanted.clear();
        self.closing = true;
        for place in 0..self.hosts {
            self.with(place, |node, shared| {
                while !node.ends.is_empty() {
                    node.end(0, PairEnd::Closed, shared)?;
                }
                Ok(())
            })?;
            self.serve(place)?;
        }
        Ok(())
    }

    fn with(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut Node, &mut RunContext<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let Ok(node) = &mut self.nodes[place] else {
            return Ok(());
        };
        let mut shared = RunContext {
            fabric: &mut self.fabric,
            accounting: &mut self.accounting,
            rng: &mut self.rng,
            now: self.now,
        };
        work(node, &mut shared)
    }

    fn serve(&mut self, place: usize) -> Result<(), String> {
        self.with(place, Node::serve)?;
        self.check_ended(place)
    }

    /// Checks the ends that are over: the reason must be a fault of this run.
    fn check_ended(&mut self, place: usize) -> Result<(), String> {
        let Ok(node) = &mut self.nodes[place] else {
            return Ok(());
        };
        for (name, why) in core::mem::take(&mut node.ended) {
            let closing = self.closing;
            let struck = self.faulty || self.died.contains(&name.host) || closing;
            let wrong = matches!(
                why,
                PairEnd::Ended(
                    EndReason::NoReceive
                        | EndReason::Refused
                        | EndReason::LocalMemory
                        | EndReason::Overflow
                )
            );
            if wrong || !struck {
                return Err(format!("{name} ended without a reason: {why:?}"));
            }
            self.outcome.ended += u64::from(!closing);
            let like = |w: &&mut WantedConnection| {
                (w.host, w.unit, w.arrangement) == (name.host, name.unit, name.arrangement)
            };
            if place == name.host
                && let Some(wish) = self.wanted.iter_mut().find(like)
            {
                wish.at = self.now + Duration::from_micros(self.rng.below(10_000));
            }
        }
        Ok(())
    }

    /// Lets the next event happen.
    fn step(&mut self, mood: Activity) -> Result<(), String> {
        let deadlines = self.nodes.iter().flatten().filter_map(|n| n.deadline);
        let timer = deadlines.chain([self.next_tick]).min().unwrap_or(Time::MAX);
        if let Some(at) = self.fabric.next().filter(|at| *at <= timer) {
            self.now = at;
            let Some((place, cell)) = self.fabric.step() else {
                return Ok(());
            };
            if let Ok(node) = &mut self.nodes[place] {
                node.handle_cells(&cell, at);
            }
            return self.serve(place);
        }
        self.now = self.now.max(timer);
        for place in 0..self.nodes.len() {
            let now = self.now;
            if let Ok(node) = &mut self.nodes[place]
                && node.deadline.is_some_and(|deadline| deadline <= now)
            {
                node.handle_timeout(now);
                self.serve(place)?;
            }
        }
        if self.next_tick <= self.now {
            self.tick(mood)?;
        }
        Ok(())
    }

    fn tick(&mut self, mood: Activity) -> Result<(), String> {
        self.next_tick = self.now + TICK;
        if self.partitions && self.rng.chance(PARTITION) {
            let until = self.now + Duration::from_micros(self.rng.below(40_000));
            self.fabric.partition(until);
        }
        if self.deaths && self.rng.chance(KILL_HOST) {
            let place = self.rng.len(0, self.hosts - 1);
            if self.nodes[place].is_ok() {
                self.outcome.deaths += 1;
                self.died.insert(place);
                // Its memory is gone, and its peers are not told.
                let until = self.now + Duration::from_micros(self.rng.below(30_000));
                self.nodes[place] = Err(until);
                if self.rng.chance(NEVER_RESTART) {
                    self.nodes[place] = Err(Time::MAX);
                    self.wanted.retain(|wish| wish.host != place);
                }
            }
        }
        for place in 0..self.nodes.len() {
            if let Err(until) = self.nodes[place]
                && until < Time::MAX
                && (until <= self.now || !self.deaths)
            {
                self.nodes[place] = Ok(Node::new(place, false, &mut self.rng)?);
            }
            self.with(place, |node, shared| node.tick(mood, shared))?;
            self.request_wanted(place)?;
            self.serve(place)?;
        }
        Ok(())
    }

    /// A host requests the connections that it wants and does not have.
    fn request_wanted(&mut self, place: usize) -> Result<(), String> {
        let mut wishes = self.wanted.clone();
        wishes.retain(|wish| wish.host == place && wish.at <= self.now);
        for WantedConnection {
            host,
            unit,
            arrangement,
            ..
        } in wishes
        {
            let name = ServiceId {
                host,
                unit,
                arrangement,
                number: self.outcome.connections,
            };
            let missing = |node: &Node| node.ends.iter().all(|end| !end.id.is_same_service(&name));
            if self.nodes[place].as_ref().is_ok_and(missing) {
                self.outcome.connections += 1;
                self.with(place, |node, shared| node.connect(name, shared))?;
            }
        }
        Ok(())
    }
}
