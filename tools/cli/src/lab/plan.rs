//! The file of a lab: hosts, switches, routers, links, faults and a timeline, in TOML. A plan that was read is consistent: names are unique,
//! links have two known ends, and every host has an address. Numbers and lengths have limits.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use verbena_fabric::{Mac, PortMode, Prefix};

use super::error::LabError;
use super::fault::{self, Change};

/// Limit on hosts, switches and routers together.
pub const MOST_NODES: usize = 256;
/// Limit on links.
pub const MOST_LINKS: usize = 512;
/// Limit on the links of a host.
pub const MOST_INTERFACES: usize = 8;
/// Limit on the events of the timeline.
const MOST_EVENTS: usize = 1_000;
/// Limit on the length of a file, which is sent in one packet.
const MOST_FILE: usize = 64 << 10;
const MOST_NAME: usize = 32;
const MTU: core::ops::RangeInclusive<u32> = 1280..=65_521;
/// Where hosts without an address get one.
const AUTO_V4: [u8; 3] = [10, 77, 0];
const AUTO_V6: u16 = 0xfd77;

/// One value or a list of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn prefixes(&self, of: &str) -> Result<Vec<Prefix>, LabError> {
        let all = match self {
            OneOrMany::One(one) => core::slice::from_ref(one),
            OneOrMany::Many(all) => all,
        };
        if all.len() > MOST_INTERFACES {
            let got = all.len();
            return Err(LabError(format!(
                "{of}: {got} addresses are more than {MOST_INTERFACES}"
            )));
        }
        let parsed = all.iter().map(|text| text.parse());
        let parsed: Result<Vec<Prefix>, _> = parsed.collect();
        parsed.map_err(|error| LabError(format!("{of}: {error}")))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostEntry {
    address: Option<OneOrMany>,
    gateway: Option<IpAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SwitchEntry {
    flood_limit: Option<u32>,
    age: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RouterEntry {
    routes: Vec<RouteEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteEntry {
    to: String,
    via: IpAddr,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum VlanEntry {
    Access(u16),
    Named(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    ends: [String; 2],
    name: Option<String>,
    #[serde(default)]
    address: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    vlan: BTreeMap<String, VlanEntry>,
    mtu: Option<u32>,
    #[serde(default)]
    faults: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEntry {
    at: String,
    link: String,
    set: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    hosts: BTreeMap<String, HostEntry>,
    #[serde(default)]
    switches: BTreeMap<String, SwitchEntry>,
    #[serde(default)]
    routers: BTreeMap<String, RouterEntry>,
    #[serde(default)]
    links: Vec<LinkEntry>,
    #[serde(default)]
    events: Vec<EventEntry>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A host.
    Host,
    /// A switch.
    Switch,
    /// A router.
    Router,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Of a host: its default gateways.
    pub gateways: Vec<IpAddr>,
    /// Of a switch.
    pub flood_limit: Option<u32>,
    /// Of a switch: how long it remembers an address.
    pub age: Option<Duration>,
    /// Of a router: destination and next router.
    pub routes: Vec<(Prefix, IpAddr)>,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// The number of the node.
    pub node: usize,
    /// Its addresses on this link, if it is a host or router.
    pub addresses: Vec<Prefix>,
    /// The mode of a switch's port.
    pub mode: PortMode,
    /// The link address of a host or router.
    pub mac: Mac,
}

/// A link.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its ends.
    pub ends: [End; 2],
    /// The longest packet.
    pub mtu: u32,
    /// The faults that it begins with.
    pub faults: Change,
}

/// An event of the timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, from the start on.
    pub at: Duration,
    /// The number of the link.
    pub link: usize,
    /// What changes.
    pub change: Change,
}

/// A lab that can be built.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The seed of its faults.
    pub seed: u64,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its links.
    pub links: Vec<Link>,
    /// Its timeline, in order.
    pub events: Vec<Event>,
}

/// Checks the name of a lab, node or link.
pub fn check_name(what: &str, name: &str) -> Result<(), LabError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=MOST_NAME).contains(&name.len())
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return Ok(());
    }
    Err(LabError(format!(
        "`{name}` is no name for a {what}: one to {MOST_NAME} letters, digits, - and _, beginning with a letter or digit"
    )))
}

impl Plan {
    /// Reads the text of a file. Without a name in it, the lab has `default_name`.
    pub fn parse(text: &str, default_name: &str) -> Result<Plan, LabError> {
        if text.len() > MOST_FILE {
            let got = text.len();
            return Err(LabError(format!("{got} bytes are more than {MOST_FILE}")));
        }
        let file: File = toml::from_str(text).map_err(|error| LabError(error.to_string()))?;
        let mut plan = Plan {
            name: file.name.unwrap_or_else(|| default_name.to_owned()),
            seed: file.seed,
            nodes: nodes(file.hosts.iter(), file.switches, file.routers)?,
            links: Vec::new(),
            events: Vec::new(),
        };
        check_name("lab", &plan.name)?;
        if file.links.len() > MOST_LINKS {
            let got = file.links.len();
            return Err(LabError(format!("{got} links are more than {MOST_LINKS}")));
        }
        for entry in file.links {
            plan.add_link(entry)?;
        }
        plan.address_hosts(&file.hosts)?;
        plan.check_hosts()?;
        plan.check_vlans()?;
        plan.find_gateways();
        if file.events.len() > MOST_EVENTS {
            let got = file.events.len();
            return Err(LabError(format!(
                "{got} events are more than {MOST_EVENTS}"
            )));
        }
        for entry in file.events {
            let wrong = || LabError(format!("`{}` is no time of an event, as in 5s", entry.at));
            plan.events.push(Event {
                at: fault::time(&entry.at).ok_or_else(wrong)?,
                link: plan.link(&entry.link)?,
                change: Change::parse(&entry.set)?,
            });
        }
        plan.events.sort_by_key(|event| event.at);
        Ok(plan)
    }

    /// The number of a link.
    pub fn link(&self, name: &str) -> Result<usize, LabError> {
        let found = self.links.iter().position(|link| link.name == name);
        found.ok_or_else(|| {
            let all: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
            LabError(format!(
                "there is no link `{name}`; links: {}",
                all.join(", ")
            ))
        })
    }

    /// The number of a node.
    fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The hosts, by number.
    pub fn hosts(&self) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.kind == Kind::Host)
    }

    /// The links of a node, with the end at it.
    pub fn links_of(&self, node: usize) -> impl Iterator<Item = (usize, &Link, &End)> {
        self.links
            .iter()
            .enumerate()
            .flat_map(move |(index, link)| {
                let ends = link.ends.iter().filter(move |end| end.node == node);
                ends.map(move |end| (index, link, end))
            })
    }

    fn add_link(&mut self, entry: LinkEntry) -> Result<(), LabError> {
        let [a, b] = &entry.ends;
        let name = entry.name.unwrap_or_else(|| format!("{a}-{b}"));
        if name.len() > 2 * MOST_NAME + 1 || name.chars().any(char::is_whitespace) {
            return Err(LabError(format!("`{name}` is no name for a link")));
        }
        if self.links.iter().any(|link| link.name == name) {
            return Err(LabError(format!(
                "two links have the name `{name}`: give one of them another `name`"
            )));
        }
        if a == b {
            return Err(LabError(format!("link {name}: both ends are `{a}`")));
        }
        let named = entry.address.keys().chain(entry.vlan.keys());
        if let Some(other) = named.into_iter().find(|end| !entry.ends.contains(end)) {
            return Err(LabError(format!("link {name}: `{other}` is not an end")));
        }
        let mtu = entry.mtu.unwrap_or(1500);
        if !MTU.contains(&mtu) {
            let (least, most) = (MTU.start(), MTU.end());
            return Err(LabError(format!(
                "link {name}: mtu {mtu} is not between {least} and {most}"
            )));
        }
        let index = self.links.len() as u64;
        let mut ends = Vec::new();
        for (side, text) in entry.ends.iter().enumerate() {
            let unknown = || LabError(format!("link {name}: there is no node `{text}`"));
            let node = self.node(text).ok_or_else(unknown)?;
            let kind = self.nodes[node].kind;
            let addresses = match entry.address.get(text) {
                None => Vec::new(),
                Some(_) if kind == Kind::Switch => {
                    return Err(LabError(format!(
                        "link {name}: the switch `{text}` has no address"
                    )));
                }
                Some(all) => all.prefixes(&format!("link {name}, {text}"))?,
            };
            let mode = match entry.vlan.get(text) {
                None => PortMode::Plain,
                Some(_) if kind != Kind::Switch => {
                    return Err(LabError(format!(
                        "link {name}: `{text}` is no switch and has no VLAN"
                    )));
                }
                Some(VlanEntry::Access(vlan @ 1..=4094)) => PortMode::Access(*vlan),
                Some(VlanEntry::Named(word)) if word == "trunk" => PortMode::Trunk,
                Some(other) => {
                    return Err(LabError(format!(
                        "link {name}: {other:?} is neither a VLAN from 1 to 4094 nor \"trunk\""
                    )));
                }
            };
            ends.push(End {
                node,
                addresses,
                mode,
                // Different in each lab file, so that two labs can be joined.
                mac: Mac::local(
                    0x1ab0_0000_0000 | (self.seed & 0xffff) << 16 | index << 1 | side as u64,
                ),
            });
        }
        let faults = Change::parse(&entry.faults)
            .map_err(|error| LabError(format!("link {name}: {error}")))?;
        let ends = <[End; 2]>::try_from(ends).map_err(|_| LabError::new("a link has two ends"))?;
        self.links.push(Link {
            name,
            ends,
            mtu,
            faults,
        });
        Ok(())
    }

    /// Addresses of the hosts' entries, and automatic ones where no router needs to know them.
    fn address_hosts(&mut self, entries: &BTreeMap<String, HostEntry>) -> Result<(), LabError> {
        let has_routers = self.nodes.iter().any(|node| node.kind == Kind::Router);
        let hosts: Vec<(usize, String)> = self
            .hosts()
            .map(|(index, node)| (index, node.name.clone()))
            .collect();
        for (number, (node, name)) in hosts.iter().enumerate() {
            let given = entries.get(name).and_then(|entry| entry.address.as_ref());
            let mut given = match given {
                Some(all) => all.prefixes(&format!("host {name}"))?,
                None => Vec::new(),
            };
            let mut ends = self.links.iter_mut().flat_map(|link| &mut link.ends);
            let Some(first) = ends.find(|end| end.node == *node) else {
                return Err(LabError(format!("host `{name}` has no link")));
            };
            if given.is_empty() && first.addresses.is_empty() {
                let last = u8::try_from(number + 1).ok().filter(|last| *last < 255);
                let (Some(last), false) = (last, has_routers) else {
                    return Err(LabError(format!(
                        "host `{name}` has no address, as in address = \"10.0.0.1/24\""
                    )));
                };
                let [a, b, c] = AUTO_V4;
                let v6 = [AUTO_V6, 0, 0, 0, 0, 0, 0, u16::from(last)];
                given.extend(Prefix::new([a, b, c, last].into(), 24));
                given.extend(Prefix::new(v6.into(), 64));
            }
            first.addresses.append(&mut given);
        }
        Ok(())
    }

    /// Plain ports would exchange no frames with the others of a switch.
    fn check_vlans(&self) -> Result<(), LabError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut modes = self.links_of(index).map(|(_, _, end)| end.mode);
            let plain = modes.next() == Some(PortMode::Plain);
            if modes.any(|mode| (mode == PortMode::Plain) != plain) {
                let name = &node.name;
                return Err(LabError(format!(
                    "switch {name}: some of its ports have a VLAN and some have none; \
                     `vlan = {{ {name} = 1 }}` is what ports without tags have elsewhere"
                )));
            }
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), LabError> {
        let mut seen = BTreeSet::new();
        for link in &self.links {
            for end in &link.ends {
                for address in end.addresses.iter().map(Prefix::address) {
                    if !seen.insert(address) {
                        return Err(LabError(format!(
                            "{address} is the address of two interfaces"
                        )));
                    }
                }
            }
        }
        for (node, host) in self.hosts() {
            let links = self.links_of(node).count();
            if links > MOST_INTERFACES {
                let name = &host.name;
                return Err(LabError(format!(
                    "host `{name}` has {links} links; the most is {MOST_INTERFACES}"
                )));
            }
        }
        Ok(())
    }

    /// A host without a gateway takes the first router in one of its networks, for each IP version.
    fn find_gateways(&mut self) {
        let routers: Vec<IpAddr> = self
            .links
            .iter()
            .flat_map(|link| &link.ends)
            .filter(|end| self.nodes[end.node].kind == Kind::Router)
            .flat_map(|end| end.addresses.iter().map(Prefix::address))
            .collect();
        for node in 0..self.nodes.len() {
            if self.nodes[node].kind != Kind::Host {
                continue;
            }
            let own: Vec<Prefix> = self
                .links_of(node)
                .flat_map(|(_, _, end)| end.addresses.iter().copied())
                .collect();
            for v4 in [true, false] {
                let given = &mut self.nodes[node].gateways;
                if given.iter().any(|gateway| gateway.is_ipv4() == v4) {
                    continue;
                }
                let near = |address: &&IpAddr| {
                    address.is_ipv4() == v4 && own.iter().any(|prefix| prefix.contains(**address))
                };
                given.extend(routers.iter().find(near));
            }
        }
    }
}

fn nodes<'a>(
    hosts: impl Iterator<Item = (&'a String, &'a HostEntry)>,
    switches: BTreeMap<String, SwitchEntry>,
    routers: BTreeMap<String, RouterEntry>,
) -> Result<Vec<Node>, LabError> {
    let node = |name: &str, kind| Node {
        name: name.to_owned(),
        kind,
        gateways: Vec::new(),
        flood_limit: None,
        age: None,
        routes: Vec::new(),
    };
    let mut all = Vec::new();
    for (name, entry) in hosts {
        all.push(Node {
            gateways: entry.gateway.into_iter().collect(),
            ..node(name, Kind::Host)
        });
    }
    for (name, entry) in switches {
        let wrong =
            |text: &String| LabError(format!("switch {name}: `{text}` is no age, as in 300s"));
        let age = entry.age.as_ref();
        let age = age.map(|text| fault::time(text).ok_or_else(|| wrong(text)));
        all.push(Node {
            flood_limit: entry.flood_limit,
            age: age.transpose()?,
            ..node(&name, Kind::Switch)
        });
    }
    for (name, entry) in routers {
        let mut routes = Vec::new();
        for route in &entry.routes {
            let wrong = |error| LabError(format!("router {name}: {error}"));
            routes.push((route.to.parse().map_err(wrong)?, route.via));
        }
        all.push(Node {
            routes,
            ..node(&name, Kind::Router)
        });
    }
    if all.len() > MOST_NODES {
        let got = all.len();
        return Err(LabError(format!(
            "{got} hosts, switches and routers are more than {MOST_NODES}"
        )));
    }
    let mut seen = BTreeSet::new();
    for found in &all {
        check_name("host, switch or router", &found.name)?;
        if !seen.insert(found.name.clone()) {
            return Err(LabError(format!(
                "two nodes have the name `{}`",
                found.name
            )));
        }
    }
    if !all.iter().any(|node| node.kind == Kind::Host) {
        return Err(LabError::new(
            "a lab needs a host: a table such as [hosts.a]",
        ));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
