//! One run of the simulation: its nodes, its events, and the checks at its end.

use std::sync::Arc;

use core::time::Duration;

use verbena_cells::{ChannelKind, Config, Notice, Peer, Port};
use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_nic::{Outbox, Status, Wc};
use verbena_split_wire::cell::{
    AddressBlock, Body, Cell, CellPosition, CellRoute, Data, DisconnectReason, NakReason,
    PacketSeq, Tail, Terms,
};
use verbena_stream::Time;
use verbena_wire::crc::crc32c;
use verbena_wire::number::Qpn;
use verbena_wire::{Stag, To};

use crate::end::{Destination, End, PD, TOTAL};
use crate::fabric::{Fabric, Faults, address};
use crate::rng::Rng;

const NODES: usize = 4;
/// The number of the node of the hostile sender.
const HOSTILE: usize = 6;
const LISTENER: u32 = 7;
/// Limit on the steps of a run.
const STEPS: usize = 300_000;

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Acknowledged, connected ends whose packets all arrived.
    pub(crate) carried: usize,
    /// Acknowledged, connected ends that failed with an error.
    pub(crate) failed: usize,
    /// Packets that should have completed a receive and did not.
    pub(crate) undelivered: usize,
}

struct Node {
    port: Port,
    tpt: Arc<Tpt>,
    out: Outbox,
    room: usize,
    /// Memory of another protection domain, to which no access is allowed.
    guard: Buffer,
}

struct World {
    nodes: Vec<Node>,
    ends: Vec<End>,
    fabric: Fabric,
    rng: Rng,
    now: Time,
    /// When delayed receives are posted and the hostile sender is active next.
    tick: Time,
    hostile_cells: usize,
}

/// Runs one seed; panics if a check fails.
pub(crate) fn run(seed: u64, faults: Faults) -> Outcome {
    let mut rng = Rng::new(seed);
    let fabric = Fabric::new(rng.clone(), faults);
    let nodes = (0..NODES).map(|at| node(at, &mut rng)).collect();
    let mut world = World {
        nodes,
        ends: Vec::new(),
        fabric,
        rng,
        now: Time::ZERO,
        tick: Time::ZERO,
        hostile_cells: if faults.lose > 0 { 60 } else { 0 },
    };
    for (acknowledged, connected) in [
        (true, true),
        (true, true),
        (false, true),
        (true, false),
        (false, false),
    ] {
        world.pair(ChannelKind {
            acknowledged,
            connected,
        });
    }
    let mut steps = 0;
    while world.step() {
        steps += 1;
        assert!(steps < STEPS, "seed {seed} does not come to rest");
    }
    world.check(seed)
}

fn node(at: usize, rng: &mut Rng) -> Node {
    let config = Config {
        cell: 64 + rng.below(450) as u16,
        window: 1 + rng.below(8) as usize,
        timeout: Duration::from_millis(5),
        retries: 8,
        connect_timeout: Duration::from_millis(10),
        ..Config::default()
    };
    let tpt = Arc::new(Tpt::new(1..500, Policy::Verbs, rng.next()));
    let guard = Buffer::new(&tpt, 4096, Pd(9), Access::ALL).unwrap();
    let mut port = Port::new(address(at), config).unwrap();
    port.listen(Qpn::wrapping(LISTENER), true).unwrap();
    port.listen(Qpn::wrapping(LISTENER + 1), false).unwrap();
    Node {
        port,
        tpt,
        out: Outbox::new(),
        room: 600 + rng.below(1400) as usize,
        guard,
    }
}

impl World {
    fn pair(&mut self, kind: ChannelKind) {
        let a = self.rng.below(NODES as u64) as usize;
        let b = (a + 1 + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let cell = |node: usize| usize::from(self.nodes[node].port.config().cell);
        let longest = if kind.connected {
            1500
        } else {
            cell(a).min(cell(b))
        };
        for node in [a, b] {
            let me = self.ends.len();
            let Node { port, tpt, .. } = &mut self.nodes[node];
            let end = End::new((me, node, kind), longest, (port, tpt), &mut self.rng);
            self.ends.push(end);
        }
        if kind.connected {
            self.connect(self.ends.len() - 2);
        }
    }

    /// The even end of a pair connects to the odd one; its private data identifies it.
    fn connect(&mut self, me: usize) {
        let (end, peer) = (&self.ends[me], &self.ends[me + 1]);
        let listener = LISTENER + u32::from(!end.kind.acknowledged);
        let to = Peer {
            port: address(peer.node),
            wqp: Qpn::wrapping(listener),
        };
        let first = PacketSeq::new(self.rng.next() as u32);
        let port = &mut self.nodes[end.node].port;
        port.connect(end.number, to, first, &[me as u8]).unwrap();
    }

    /// Handles everything that is due; then advances the time to the next event. False if there is none.
    fn step(&mut self) -> bool {
        for at in 0..self.nodes.len() {
            self.notices(at);
        }
        for me in 0..self.ends.len() {
            self.serve(me);
        }
        for at in 0..self.nodes.len() {
            self.transmit(at);
        }
        let busy = self.hostile_cells > 0 || self.ends.iter().any(|end| !end.unposted.is_empty());
        let deadlines = self.nodes.iter().filter_map(|node| node.port.deadline());
        let ticks = busy.then_some(self.tick);
        let timer = deadlines.chain(ticks).min();
        match (self.fabric.next(), timer) {
            (None, None) => return false,
            (Some(flight), timer) if timer.is_none_or(|timer| flight <= timer) => {
                self.now = flight;
                if let Some((at, bytes)) = self.fabric.step()
                    && let Some(node) = self.nodes.get_mut(at)
                {
                    node.port.handle_cells(&bytes, flight, &mut node.out);
                }
            }
            (_, timer) => {
                self.now = timer.unwrap_or(self.now).max(self.now);
                for node in &mut self.nodes {
                    node.port.handle_timeout(self.now, &mut node.out);
                }
                if self.tick <= self.now {
                    self.tick();
                }
            }
        }
        true
    }

    fn tick(&mut self) {
        self.tick = self.now + Duration::from_micros(700);
        for end in &mut self.ends {
            for id in core::mem::take(&mut end.unposted) {
                end.receive(id, &mut self.nodes[end.node].port);
            }
        }
        if self.hostile_cells > 0 {
            self.hostile_cells -= 1;
            let at = self.rng.below(NODES as u64) as usize;
            let bytes = self.hostile(at);
            let node = &mut self.nodes[at];
            node.port.handle_cells(&bytes, self.now, &mut node.out);
        }
    }

    fn notices(&mut self, at: usize) {
        while let Some(notice) = self.nodes[at].port.poll_notice() {
            let find = |wqp: Qpn| (wqp.get() - 100) as usize;
            match notice {
                Notice::Request {
                    ticket,
                    from,
                    private,
                    ..
                } => {
                    let port = &mut self.nodes[at].port;
                    if from.port == address(HOSTILE) {
                        port.reject(ticket, &[]).unwrap();
                        continue;
                    }
                    let me = usize::from(private[0]) + 1;
                    let first = PacketSeq::new(self.rng.next() as u32);
                    let end = &mut self.ends[me];
                    assert_eq!((end.node, from.port), (at, address(self.nodes_of(me - 1))));
                    let end = &mut self.ends[me];
                    let port = &mut self.nodes[at].port;
                    // A peer that was connected and connects again has failed on its side: this end is stale.
                    match port.accept(ticket, end.number, first, b"") {
                        Ok(()) => end.connected = true,
                        Err(_) => port.reject(ticket, &[]).unwrap(),
                    }
                }
                Notice::Connected { wqp, .. } => self.ends[find(wqp)].connected = true,
                Notice::Rejected { wqp, .. } | Notice::Unanswered { wqp } => {
                    self.ends[find(wqp)].ended = true;
                }
                Notice::Ended { wqp, .. } => self.ends[find(wqp)].ended = true,
            }
        }
    }

    fn nodes_of(&self, end: usize) -> usize {
        self.ends[end].node
    }

    fn serve(&mut self, me: usize) {
        let mut wcs = [Wc::default(); 32];
        let count = self.ends[me].send_cq.poll(&mut wcs);
        for wc in &wcs[..count] {
            self.ends[me].sent(wc);
        }
        let count = self.ends[me].recv_cq.poll(&mut wcs);
        for wc in &wcs[..count] {
            if wc.status != Status::Success {
                assert!(self.ends[me].ended, "a receive failed: {wc:?}");
                continue;
            }
            let peer = me ^ 1;
            let node = self.ends[me].node;
            let number = self.ends[me].number;
            let mut ours = true;
            if !self.ends[me].kind.connected {
                let from = self.nodes[node].port.take_source(number, wc.id).unwrap();
                ours = from.port == address(self.nodes_of(peer));
                assert!(ours || from.port == address(HOSTILE));
            }
            let (low, high) = self.ends.split_at_mut(me.max(peer));
            let (end, from) = match me < peer {
                true => (&mut low[me], &high[0]),
                false => (&mut high[0], &low[peer]),
            };
            if ours {
                end.received(wc, from);
            }
            if end.kind.acknowledged && self.rng.chance(300) {
                end.unposted.push(wc.id);
            } else if !end.ended {
                end.receive(wc.id, &mut self.nodes[node].port);
            }
        }
        let peer = &self.ends[me ^ 1];
        let aim = Destination {
            peer: Peer {
                port: address(peer.node),
                wqp: peer.number,
            },
            stag: peer.target.stag(),
            at: peer.target.at(),
        };
        let end = &mut self.ends[me];
        while end.connected && !end.ended && end.posted < TOTAL && end.posted < end.done.len() + 5 {
            end.post(&aim, &mut self.nodes[end.node].port, &mut self.rng);
        }
    }

    fn transmit(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let mut datagram = Vec::new();
        let mut turns = 0;
        while let Some(to) =
            node.port
                .poll_transmit(node.room, self.now, &mut datagram, &mut node.out)
        {
            assert!(datagram.len() <= node.room.max(node.port.config().largest_cell()));
            self.fabric.send(self.now, at, to, datagram.clone());
            turns += 1;
            assert!(turns < 10_000, "transmits without end");
        }
        node.out = Outbox::new();
    }

    /// A hostile cell with correct checksums.
    fn hostile(&mut self, at: usize) -> Vec<u8> {
        let victim = self.rng.below(self.ends.len() as u64) as usize;
        let end = &self.ends[victim];
        let (guard, target) = (&self.nodes[at].guard, &end.target);
        let (stag, place) = match self.rng.below(4) {
            0 => (guard.stag(), guard.at()),
            1 => (target.stag(), target.at().wrapping_sub(8)),
            2 => (target.stag(), target.at() + target.len() as u64 - 3),
            _ => (Stag::new(self.rng.next() as u32), self.rng.next()),
        };
        let block = AddressBlock {
            at: To::new(place),
            handle: stag,
            len: 16,
        };
        let payload = [0xee; 16];
        let write = self.rng.chance(700);
        let summed = if write {
            [&block.emit()[..], &payload].concat()
        } else {
            payload.to_vec()
        };
        let (crc, immediate) = (crc32c(&summed), None);
        let cell = self.rng.below(3) as u16;
        let last = self.rng.chance(700);
        let data = Data {
            position: CellPosition::of(cell, write.then_some(block)),
            tail: if last {
                Tail::Last { immediate, crc }
            } else {
                Tail::More
            },
            acknowledged: self.rng.chance(500),
            solicited: false,
            payload: &payload,
        };
        let echo = PacketSeq::new(self.rng.next() as u32);
        let terms = Terms {
            acknowledged: self.rng.chance(500),
            max_payload: self.rng.below(300) as u16,
            private: b"x",
        };
        let body = match self.rng.below(8) {
            0 => Body::Ack,
            1 => Body::Nak(NakReason::from_code(self.rng.below(8) as u16)),
            2 => Body::Connect {
                terms,
                cookie: None,
            },
            3 => Body::Accept { echo, terms },
            4 => Body::Disconnect(DisconnectReason::from_code(self.rng.below(5) as u16)),
            _ => Body::Data(data),
        };
        let connecting = matches!(
            body,
            Body::Connect { .. } | Body::Accept { .. } | Body::Disconnect(_)
        );
        let to_wqp = match body {
            Body::Connect { .. } => Qpn::wrapping(LISTENER + self.rng.below(3) as u32),
            _ => end.number,
        };
        let cell = Cell {
            route: CellRoute {
                to: address(at),
                from: address(HOSTILE),
                to_wqp,
                from_wqp: Qpn::wrapping(self.rng.below(20) as u32),
            },
            connected: connecting || self.rng.chance(500),
            packet: echo,
            body,
        };
        let mut bytes = Vec::new();
        cell.emit(&mut bytes);
        bytes
    }

    fn check(&self, seed: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for (me, end) in self.ends.iter().enumerate() {
            let peer = &self.ends[me ^ 1];
            end.check_untouched(peer);
            let well = end.done.iter().filter(|s| **s == Status::Success).count();
            let seen = |count: usize| end.plan[..count].iter().filter(|p| p.is_visible()).count();
            outcome.undelivered += seen(TOTAL) - peer.delivered.len().min(seen(TOTAL));
            assert_eq!(
                end.done.len(),
                end.posted,
                "seed {seed}: every descriptor completes"
            );
            match (end.kind.acknowledged, end.kind.connected) {
                (true, true) => {
                    assert!(
                        peer.delivered.len() >= seen(well),
                        "seed {seed}: lost after its ack"
                    );
                    let all = well == TOTAL && peer.delivered.len() == seen(TOTAL);
                    let loud = end.ended || well < end.done.len();
                    // An end that was never connected has no failure to report.
                    assert!(
                        all || loud || !end.connected,
                        "seed {seed}: end {me} is silent"
                    );
                    if all {
                        outcome.carried += 1;
                    } else {
                        outcome.failed += 1;
                    }
                }
                (true, false) => {
                    for (item, status) in end.done.iter().enumerate() {
                        let visible = end.plan[item].is_visible();
                        let there = !visible || peer.delivered.contains(&item);
                        assert!(
                            *status != Status::Success || there,
                            "seed {seed}: item {item}"
                        );
                    }
                }
                (false, _) => {}
            }
        }
        for node in &self.nodes {
            let guard = node.guard.read(0, 4096);
            assert!(
                guard.iter().all(|byte| *byte == 0),
                "seed {seed}: the guard was touched"
            );
        }
        outcome
    }
}

const _: () = assert!(PD.0 != 9);
