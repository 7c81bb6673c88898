//! The fabric of a plan, with the names of its nodes and links, and the timeline. It has no input or output of its own.

use core::net::IpAddr;
use core::time::Duration;

use verbena_fabric::{
    EndOptions, Fabric, Faults, Hop, LinkId, LinkOptions, NodeId, PortRef, Route, SwitchOptions,
};

use super::error::LabError;
use super::fault::Change;
use super::plan::{Kind, Plan};
use super::snapshot::{LinkView, NodeView, Snapshot};

/// A fabric and what belongs to it.
#[derive(Debug)]
pub struct Network {
    /// The fabric.
    pub fabric: Fabric,
    plan: Plan,
    nodes: Vec<NodeId>,
    links: Vec<LinkId>,
    next_event: usize,
}

impl Network {
    /// Builds the fabric of a plan.
    pub fn new(plan: Plan) -> Result<Network, LabError> {
        let mut fabric = Fabric::new(plan.seed);
        let mut nodes = Vec::new();
        for node in &plan.nodes {
            let made = match node.kind {
                Kind::Host => fabric.add_host(),
                Kind::Router => fabric.add_router(),
                Kind::Switch => {
                    let usual = SwitchOptions::default();
                    fabric.add_switch(SwitchOptions {
                        flood_limit: node.flood_limit.unwrap_or(usual.flood_limit),
                        age: node.age.unwrap_or(usual.age),
                        ..usual
                    })
                }
            };
            nodes.push(made?);
        }
        let mut links = Vec::new();
        for link in &plan.links {
            let (faults, up) = link.faults.apply(Faults::NONE);
            let options = LinkOptions {
                faults,
                mtu: link.mtu as usize,
                ends: link.ends.each_ref().map(|end| EndOptions {
                    mode: end.mode,
                    mac: Some(end.mac),
                    addresses: end.addresses.clone(),
                }),
                ..LinkOptions::default()
            };
            let [a, b] = link.ends.each_ref().map(|end| nodes[end.node]);
            let made = fabric.link(a, b, &options)?;
            if up == Some(false) {
                fabric.set_up(made, false, Duration::ZERO);
            }
            links.push(made);
        }
        let mut network = Network {
            fabric,
            plan,
            nodes,
            links,
            next_event: 0,
        };
        network.add_routes()?;
        Ok(network)
    }

    /// The routes of the file: the next router has to be in a network of the router.
    fn add_routes(&mut self) -> Result<(), LabError> {
        for (index, node) in self.plan.nodes.iter().enumerate() {
            for (to, via) in &node.routes {
                let near = |via: IpAddr| {
                    let mut links = self.plan.links_of(index).enumerate();
                    links.find_map(|(port, (_, _, end))| {
                        let mut own = end.addresses.iter();
                        own.any(|own| own.contains(via)).then_some(port)
                    })
                };
                let unknown = || {
                    let name = &node.name;
                    LabError(format!("router {name}: {via} is in none of its networks"))
                };
                let hop = Hop {
                    interface: near(*via).ok_or_else(unknown)?,
                    via: Some(*via),
                };
                let route = Route {
                    network: to.network(),
                    hops: vec![hop],
                };
                let node = self.nodes[index];
                self.fabric.add_route(node, route)?;
            }
        }
        Ok(())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The ports of the hosts, in the order of nodes and their links, with the number of the link.
    pub fn host_ports(&self) -> Vec<(usize, usize, PortRef)> {
        let mut all = Vec::new();
        for (index, _) in self.plan.hosts() {
            for (port, (link, _, _)) in self.plan.links_of(index).enumerate() {
                let node = self.nodes[index];
                all.push((index, link, PortRef { node, port }));
            }
        }
        all
    }

    /// Whether any link has a fault: frames have to be as on a wire then.
    pub fn has_faults(&self) -> bool {
        let faulty = |link: &LinkId| self.fabric.faults(*link).is_some_and(|f| f != Faults::NONE);
        self.links.iter().any(faulty)
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: usize) -> bool {
        self.fabric.is_up(self.links[link])
    }

    /// The fabric's number of a link.
    pub fn link_id(&self, link: usize) -> LinkId {
        self.links[link]
    }

    /// Cuts or mends a link.
    pub fn set_up(&mut self, link: usize, up: bool, now: Duration) {
        self.fabric.set_up(self.links[link], up, now);
    }

    /// Changes a link; returns its state in words.
    pub fn change(&mut self, link: usize, change: &Change, now: Duration) -> String {
        let id = self.links[link];
        let before = self.fabric.faults(id).unwrap_or_default();
        let (faults, up) = change.apply(before);
        if faults != before {
            self.fabric.set_faults(id, faults, now);
        }
        if let Some(up) = up {
            self.fabric.set_up(id, up, now);
        }
        let state = if self.fabric.is_up(id) { "up" } else { "cut" };
        let name = &self.plan.links[link].name;
        format!("{name}: {state} {faults}").trim_end().to_owned()
    }

    /// When the next event of the timeline is due.
    pub fn next_event(&self) -> Option<Duration> {
        self.plan.events.get(self.next_event).map(|event| event.at)
    }

    /// Does the events that are due; true if there were any.
    pub fn run_events(&mut self, now: Duration) -> bool {
        let mut any = false;
        while let Some(event) = self.plan.events.get(self.next_event).cloned()
            && event.at <= now
        {
            self.change(event.link, &event.change, now);
            self.next_event += 1;
            any = true;
        }
        any
    }

    /// The state.
    pub fn snapshot(&self, now: Duration, processes: Vec<i32>) -> Snapshot {
        let nodes = self.plan.nodes.iter().enumerate().map(|(index, node)| {
            let ends = self.plan.links_of(index);
            let addresses = ends.flat_map(|(_, _, end)| end.addresses.iter());
            NodeView {
                name: node.name.clone(),
                kind: node.kind,
                addresses: addresses.map(ToString::to_string).collect(),
                counters: self.node_counters(index),
            }
        });
        let links = self.plan.links.iter().zip(&self.links).map(|(link, id)| {
            let counters = self.fabric.counters(*id).unwrap_or_default();
            LinkView {
                name: link.name.clone(),
                ends: link.ends.each_ref().map(|end| end.node),
                up: self.fabric.is_up(*id),
                blocked: self.fabric.is_blocked(*id),
                faults: self.fabric.faults(*id).unwrap_or_default().to_string(),
                traffic: counters.map(Into::into),
            }
        });
        Snapshot {
            name: self.plan.name.clone(),
            age: now,
            processes,
            nodes: nodes.collect(),
            links: links.collect(),
        }
    }

    fn node_counters(&self, index: usize) -> Vec<(String, u64)> {
        let id = self.nodes[index];
        let mut all = Vec::new();
        if let Some(counters) = self.fabric.switch_counters(id) {
            all.extend([
                ("flood_limited", counters.flood_limited),
                ("blocked", counters.blocked),
                ("wrong_vlan", counters.wrong_vlan),
                ("dropped", counters.dropped),
            ]);
        }
        if let Some(counters) = self.fabric.router_counters(id) {
            all.extend([
                ("forwarded", counters.forwarded),
                ("malformed", counters.malformed),
                ("expired", counters.expired),
                ("unreachable", counters.unreachable),
                ("too_long", counters.too_long),
                ("errors_sent", counters.errors_sent),
                ("errors_limited", counters.errors_limited),
                ("lies", counters.lies),
            ]);
        }
        let named = all.into_iter().filter(|(_, count)| *count > 0);
        named
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }
}
