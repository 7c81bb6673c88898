//! The whole network: nodes, links between their ports, and the frames on the way. A frame leaves at the port of a host or is counted
//! where it was dropped; switches never form a loop, because links outside of a spanning tree are blocked, and a frame that has passed
//! `MOST_HOPS` nodes is dropped in any case.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use verbena_lan::Mac;

use crate::faults::Faults;
use crate::frame::{ETH_LEN, Frame};
use crate::lane::{Counters, Lane};
use crate::prefix::Prefix;
use crate::rng::Rng;
use crate::router::{Interface, Out, Route, Router, RouterCounters};
use crate::switch::{PortMode, Switch, SwitchCounters, SwitchOptions};
use crate::topology::{self, Attachment, Edge};

/// Limit on the nodes.
const MOST_NODES: usize = 1024;
/// Limit on the links.
const MOST_LINKS: usize = 4096;
/// Limit on the addresses of an interface.
const MOST_ADDRESSES: usize = 16;
/// Limit on the switches and routers that a frame passes.
const MOST_HOPS: u8 = 64;
/// Limit on the mirrored frames that were not taken.
const MOST_MIRRORED: usize = 4096;

/// A node, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// A link, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(usize);

/// A port of a node; a node's ports are numbered in the order of its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRef {
    /// The node.
    pub node: NodeId,
    /// The number of the port.
    pub port: usize,
}

/// The caller passed an invalid argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Too many nodes or links.
    #[error("the fabric has {most} {what} already, the most it can have")]
    Full {
        /// Nodes or links.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// The node has no such part.
    #[error("node {node:?} is not a {wanted}")]
    Kind {
        /// The node.
        node: NodeId,
        /// What was expected.
        wanted: &'static str,
    },
    /// A link from a node to itself.
    #[error("a link joins two nodes, and both ends are {node:?}")]
    Itself {
        /// The node.
        node: NodeId,
    },
    /// A VLAN out of range.
    #[error("VLAN {vlan} is not between 1 and 4094")]
    Vlan {
        /// The VLAN.
        vlan: u16,
    },
    /// Too many addresses.
    #[error("an interface has at most {MOST_ADDRESSES} addresses")]
    Addresses,
}

/// One end of a link. What does not concern the kind of its node is ignored.
#[derive(Debug, Clone)]
pub struct EndOptions {
    /// How a switch's port treats VLANs.
    pub mode: PortMode,
    /// The address of a router's interface; `None`: made from the link's number.
    pub mac: Option<Mac>,
    /// The IP addresses of a router's interface.
    pub addresses: Vec<Prefix>,
}

/// A link.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Its faults.
    pub faults: Faults,
    /// Limit on the bytes that wait in one direction because of the bandwidth.
    pub queue: usize,
    /// The longest packet that routers send.
    pub mtu: usize,
    /// Its ends, in the order of the nodes.
    pub ends: [EndOptions; 2],
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        let end = EndOptions {
            mode: PortMode::Plain,
            mac: None,
            addresses: Vec::new(),
        };
        LinkOptions {
            faults: Faults::NONE,
            queue: 256 << 10,
            mtu: 1500,
            ends: [end.clone(), end],
        }
    }
}

/// A frame that arrived over a mirrored link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The link.
    pub link: LinkId,
    /// The direction: 0 from the first node to the second.
    pub direction: usize,
    /// When it arrived.
    pub at: Duration,
    /// The frame.
    pub frame: Frame,
}

#[derive(Debug)]
enum Kind {
    Host,
    Switch(Switch),
    Router(Router),
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// The link of each port, and which of its ends.
    ports: Vec<(usize, usize)>,
    /// When a router's timer is due; later events of it are ignored.
    timer: Option<Duration>,
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Link {
    ends: [PortRef; 2],
    lanes: [Lane; 2],
    faults: Faults,
    up: bool,
    /// Counts cuts: frames that were on the way do not arrive.
    epoch: u32,
    /// When each direction is to be woken; other wake events are ignored.
    wakes: [Option<Duration>; 2],
    mirrored: bool,
}

#[derive(Debug)]
enum What {
    Arrive {
        link: usize,
        direction: usize,
        epoch: u32,
        frame: Frame,
    },
    Wake {
        link: usize,
        direction: usize,
    },
    Timer {
        node: usize,
    },
}

#[derive(Debug)]
struct Event {
    at: Duration,
    order: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> core::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A network.
#[derive(Debug)]
pub struct Fabric {
    nodes: Vec<Node>,
    links: Vec<Link>,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    now: Duration,
    /// Frames that arrived at a port and are not processed yet.
    ready: VecDeque<(PortRef, Frame)>,
    outputs: VecDeque<(PortRef, Frame)>,
    mirrored: VecDeque<Mirrored>,
    unmirrored: u64,
    looped: u64,
    rng: Rng,
}

impl Fabric {
    /// A network without nodes; the seed decides about all faults.
    pub fn new(seed: u64) -> Fabric {
        Fabric {
            nodes: Vec::new(),
            links: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            now: Duration::ZERO,
            ready: VecDeque::new(),
            outputs: VecDeque::new(),
            mirrored: VecDeque::new(),
            unmirrored: 0,
            looped: 0,
            rng: Rng::new(seed),
        }
    }

    fn add(&mut self, kind: Kind) -> Result<NodeId, Misuse> {
        let most = MOST_NODES;
        if self.nodes.len() >= most {
            let what = "nodes";
            return Err(Misuse::Full { what, most });
        }
        self.nodes.push(Node {
            kind,
            ports: Vec::new(),
            timer: None,
            routes: Vec::new(),
        });
        Ok(NodeId(self.nodes.len() - 1))
    }

    /// Adds a host: frames enter and leave at its ports.
    pub fn add_host(&mut self) -> Result<NodeId, Misuse> {
        self.add(Kind::Host)
    }

    /// Adds a switch.
    pub fn add_switch(&mut self, options: SwitchOptions) -> Result<NodeId, Misuse> {
        self.add(Kind::Switch(Switch::new(options)))
    }

    /// Adds a router.
    pub fn add_router(&mut self) -> Result<NodeId, Misuse> {
        let seed = self.rng.draw();
        self.add(Kind::Router(Router::new(seed)))
    }

    /// Joins two nodes by a link between new ports of both.
    pub fn link(&mut self, a: NodeId, b: NodeId, options: &LinkOptions) -> Result<LinkId, Misuse> {
        let most = MOST_LINKS;
        if self.links.len() >= most {
            let what = "links";
            return Err(Misuse::Full { what, most });
        }
        if a == b {
            return Err(Misuse::Itself { node: a });
        }
        for (node, end) in [a, b].into_iter().zip(&options.ends) {
            let found = self.nodes.get(node.0);
            let wanted = "node of this fabric";
            found.ok_or(Misuse::Kind { node, wanted })?;
            if end.addresses.len() > MOST_ADDRESSES {
                return Err(Misuse::Addresses);
            }
            match end.mode {
                PortMode::Access(vlan) if !(1..=4094).contains(&vlan) => {
                    return Err(Misuse::Vlan { vlan });
                }
                _ => {}
            }
        }
        let index = self.links.len();
        let mut ports = Vec::new();
        for (end, node) in [a, b].into_iter().enumerate() {
            let options_of_end = &options.ends[end];
            let made = Mac::local((index as u64) << 1 | end as u64);
            let entry = &mut self.nodes[node.0];
            match &mut entry.kind {
                Kind::Host => {}
                Kind::Switch(switch) => {
                    switch.add_port(options_of_end.mode);
                }
                Kind::Router(router) => router.add_interface(Interface {
                    mac: options_of_end.mac.unwrap_or(made),
                    addresses: options_of_end.addresses.clone(),
                    mtu: options.mtu,
                    up: true,
                }),
            }
            let port = entry.ports.len();
            entry.ports.push((index, end));
            ports.push(PortRef { node, port });
        }
        let mut lane = || Lane::new(options.queue, Rng::new(self.rng.draw()));
        self.links.push(Link {
            ends: [ports[0], ports[1]],
            lanes: [lane(), lane()],
            faults: options.faults,
            up: true,
            epoch: 0,
            wakes: [None; 2],
            mirrored: false,
        });
        self.settle();
        Ok(LinkId(index))
    }

    /// Adds a route of a router, which is preferred to one that was found.
    pub fn add_route(&mut self, node: NodeId, route: Route) -> Result<(), Misuse> {
        let wanted = "router";
        let found = self.nodes.get_mut(node.0);
        match found {
            Some(found) if matches!(found.kind, Kind::Router(_)) => found.routes.push(route),
            _ => return Err(Misuse::Kind { node, wanted }),
        }
        self.settle();
        Ok(())
    }

    /// The routes of a router.
    pub fn routes(&self, node: NodeId) -> &[Route] {
        match self.nodes.get(node.0).map(|node| &node.kind) {
            Some(Kind::Router(router)) => router.routes(),
            _ => &[],
        }
    }

    /// The ports of a link.
    pub fn ends(&self, link: LinkId) -> Option<[PortRef; 2]> {
        self.links.get(link.0).map(|link| link.ends)
    }

    /// The faults of a link.
    pub fn faults(&self, link: LinkId) -> Option<Faults> {
        self.links.get(link.0).map(|link| link.faults)
    }

    /// Whether a link is up: it is not cut.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links.get(link.0).is_some_and(|link| link.up)
    }

    /// Whether a link is blocked because the switches would form a loop.
    pub fn is_blocked(&self, link: LinkId) -> bool {
        let Some(link) = self.links.get(link.0) else {
            return false;
        };
        let blocked = |end: &PortRef| match self.nodes.get(end.node.0).map(|node| &node.kind) {
            Some(Kind::Switch(switch)) => switch.is_blocked(end.port),
            _ => false,
        };
        link.ends.iter().any(blocked)
    }

    /// The counters of both directions of a link; the first from its first node to the second.
    pub fn counters(&self, link: LinkId) -> Option<[Counters; 2]> {
        let link = self.links.get(link.0)?;
        Some([link.lanes[0].counters, link.lanes[1].counters])
    }

    /// The counters of a switch.
    pub fn switch_counters(&self, node: NodeId) -> Option<SwitchCounters> {
        match &self.nodes.get(node.0)?.kind {
            Kind::Switch(switch) => Some(switch.counters),
            _ => None,
        }
    }

    /// The counters of a router.
    pub fn router_counters(&self, node: NodeId) -> Option<RouterCounters> {
        match &self.nodes.get(node.0)?.kind {
            Kind::Router(router) => Some(router.counters),
            _ => None,
        }
    }

    /// Frames that were dropped because they had passed too many nodes.
    pub fn looped(&self) -> u64 {
        self.looped
    }

    /// Sets the faults of a link.
    pub fn set_faults(&mut self, link: LinkId, faults: Faults, now: Duration) {
        self.advance(now);
        if let Some(found) = self.links.get_mut(link.0) {
            found.faults = faults;
            // What waits for a bandwidth that has changed.
            for direction in 0..2 {
                self.wake(link.0, direction, self.now);
            }
            self.process();
        }
    }

    /// Cuts or mends a link; switches and routers find other ways at once.
    pub fn set_up(&mut self, link: LinkId, up: bool, now: Duration) {
        self.advance(now);
        let Some(found) = self.links.get_mut(link.0).filter(|link| link.up != up) else {
            return;
        };
        found.up = up;
        found.epoch = found.epoch.wrapping_add(1);
        for lane in &mut found.lanes {
            lane.clear();
        }
        for end in found.ends {
            if let Kind::Router(router) = &mut self.nodes[end.node.0].kind {
                router.set_up(end.port, up);
            }
        }
        self.settle();
    }

    /// Whether frames that arrive over a link are copied for [`Fabric::take_mirrored`].
    pub fn set_mirrored(&mut self, link: LinkId, mirrored: bool) {
        if let Some(link) = self.links.get_mut(link.0) {
            link.mirrored = mirrored;
        }
    }

    /// The next copy.
    pub fn take_mirrored(&mut self) -> Option<Mirrored> {
        self.mirrored.pop_front()
    }

    /// Copies that were dropped because nothing took the ones before.
    pub fn unmirrored(&self) -> u64 {
        self.unmirrored
    }

    /// Blocked links and routes for the links that are up.
    fn settle(&mut self) {
        let edges: Vec<Edge> = self
            .links
            .iter()
            .map(|link| Edge {
                nodes: link.ends.map(|end| end.node.0),
                up: link.up,
            })
            .collect();
        let is_switch = |node: usize| matches!(self.nodes[node].kind, Kind::Switch(_));
        let blocked = topology::blocked(&edges, is_switch);
        let segments = topology::segments(&edges, is_switch);
        let mut attachments = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Kind::Router(router) = &node.kind {
                let all = router.interfaces().iter().zip(&node.ports).enumerate();
                attachments.extend(all.map(|(interface, (own, (edge, _)))| Attachment {
                    router: index,
                    interface,
                    edge: *edge,
                    addresses: own.addresses.clone(),
                }));
            }
        }
        let mut routes = topology::routes(&attachments, &segments);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            match &mut node.kind {
                Kind::Host => {}
                Kind::Switch(switch) => {
                    let ports = node.ports.iter().enumerate();
                    let shut = ports.filter(|(_, (edge, _))| blocked.contains(edge));
                    let shut: BTreeSet<usize> = shut.map(|(port, _)| port).collect();
                    switch.set_blocked(&shut);
                }
                Kind::Router(router) => {
                    let found = routes.remove(&index).unwrap_or_default();
                    // The last of equal prefixes is preferred.
                    router.set_routes(found.into_iter().chain(node.routes.iter().cloned()));
                }
            }
        }
    }

    /// A frame enters at the port of a host. Time does not go backwards: an earlier one counts as the latest so far.
    pub fn inject(&mut self, at: PortRef, mut frame: Frame, now: Duration) -> Result<(), Misuse> {
        self.advance(now);
        let found = self.nodes.get(at.node.0);
        let is_port =
            found.is_some_and(|node| matches!(node.kind, Kind::Host) && at.port < node.ports.len());
        if !is_port {
            let wanted = "host with this port";
            let node = at.node;
            return Err(Misuse::Kind { node, wanted });
        }
        frame.hops = 0;
        if frame.bytes.len() >= ETH_LEN {
            self.leave(at, frame, self.now);
            self.process();
        }
        Ok(())
    }

    /// Does what is due until `now`.
    pub fn advance(&mut self, now: Duration) {
        while let Some(Reverse(event)) = self.events.peek() {
            if event.at > now {
                break;
            }
            let Some(Reverse(event)) = self.events.pop() else {
                break;
            };
            self.now = self.now.max(event.at);
            match event.what {
                What::Arrive {
                    link,
                    direction,
                    epoch,
                    frame,
                } => self.arrive(link, direction, epoch, frame),
                What::Wake { link, direction } => {
                    let due = &mut self.links[link].wakes[direction];
                    if due.take_if(|due| *due == event.at).is_some() {
                        self.wake(link, direction, event.at);
                    }
                }
                What::Timer { node } => self.tick(node, event.at),
            }
            self.process();
        }
        self.now = self.now.max(now);
    }

    /// When [`Fabric::advance`] has something to do.
    pub fn next_event(&self) -> Option<Duration> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// The next frame that leaves at the port of a host.
    pub fn take_output(&mut self) -> Option<(PortRef, Frame)> {
        self.outputs.pop_front()
    }

    fn schedule(&mut self, at: Duration, what: What) {
        let order = self.order;
        self.order += 1;
        self.events.push(Reverse(Event { at, order, what }));
    }

    /// A frame leaves a node by a port.
    fn leave(&mut self, from: PortRef, mut frame: Frame, now: Duration) {
        let node = self.nodes.get(from.node.0);
        let Some((index, end)) = node.and_then(|node| node.ports.get(from.port)).copied() else {
            return;
        };
        let link = &mut self.links[index];
        let lane = &mut link.lanes[end];
        if !link.up {
            lane.counters.cut += 1;
            return;
        }
        frame.hops += 1;
        if frame.hops > MOST_HOPS {
            self.looped += 1;
            return;
        }
        let mut out = Vec::new();
        let wake = lane.enter(frame, &link.faults, now, &mut out);
        self.travel(index, end, out, wake, now);
    }

    fn wake(&mut self, index: usize, direction: usize, now: Duration) {
        let link = &mut self.links[index];
        let mut out = Vec::new();
        let wake = link.lanes[direction].wake(&link.faults, now, &mut out);
        self.travel(index, direction, out, wake, now);
    }

    fn travel(
        &mut self,
        link: usize,
        direction: usize,
        frames: Vec<(Duration, Frame)>,
        wake: Option<Duration>,
        now: Duration,
    ) {
        let epoch = self.links[link].epoch;
        for (at, frame) in frames {
            if at <= now {
                self.arrive(link, direction, epoch, frame);
            } else {
                let what = What::Arrive {
                    link,
                    direction,
                    epoch,
                    frame,
                };
                self.schedule(at, what);
            }
        }
        let due = &mut self.links[link].wakes[direction];
        if let Some(at) = wake
            && *due != Some(at)
        {
            *due = Some(at);
            self.schedule(at, What::Wake { link, direction });
        }
    }

    fn arrive(&mut self, index: usize, direction: usize, epoch: u32, frame: Frame) {
        let link = &mut self.links[index];
        let dropped = !link.up || link.epoch != epoch;
        link.lanes[direction].arrived(&frame, dropped);
        if dropped {
            return;
        }
        if link.mirrored {
            if self.mirrored.len() < MOST_MIRRORED {
                self.mirrored.push_back(Mirrored {
                    link: LinkId(index),
                    direction,
                    at: self.now,
                    frame: frame.clone(),
                });
            } else {
                self.unmirrored += 1;
            }
        }
        self.ready.push_back((link.ends[1 - direction], frame));
    }

    fn tick(&mut self, node: usize, now: Duration) {
        let entry = &mut self.nodes[node];
        if entry.timer.is_none_or(|timer| timer > now) {
            return;
        }
        entry.timer = None;
        let mut out = Out::new();
        if let Kind::Router(router) = &mut entry.kind {
            router.tick(now, &mut out);
        }
        self.after(node, out, now);
    }

    /// Sends what a node returned, and sets its timer.
    fn after(&mut self, node: usize, out: Out, now: Duration) {
        for (port, frame) in out {
            let node = NodeId(node);
            self.leave(PortRef { node, port }, frame, now);
        }
        let entry = &mut self.nodes[node];
        if let Kind::Router(router) = &entry.kind
            && let Some(due) = router.next_timer()
            && entry.timer.is_none_or(|timer| due < timer)
        {
            entry.timer = Some(due);
            self.schedule(due, What::Timer { node });
        }
    }

    /// Passes frames through nodes until all have left or wait.
    fn process(&mut self) {
        let now = self.now;
        while let Some((at, frame)) = self.ready.pop_front() {
            let hops = frame.hops;
            let mut out = Out::new();
            match &mut self.nodes[at.node.0].kind {
                Kind::Host => {
                    self.outputs.push_back((at, frame));
                    continue;
                }
                Kind::Switch(switch) => switch.receive(at.port, frame, now, &mut out),
                Kind::Router(router) => router.receive(at.port, frame, now, &mut out),
            }
            for (_, frame) in &mut out {
                frame.hops = frame.hops.max(hops);
            }
            self.after(at.node.0, out, now);
        }
    }
}

#[cfg(test)]
mod tests;
