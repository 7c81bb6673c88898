//! A switch of the fabric: the learning switch of `verbena-lan`, once for each VLAN, behind 802.1Q ports, with a limit on flooded frames and
//! ports that can be blocked against loops. Only VLANs of the configuration have tables, so that tags of a sender create nothing.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use verbena_lan::{Limits, PortId, Role, Switch as Learning, Verdict};

use crate::frame::{Frame, Tag};

/// The VLAN of frames without a tag on a trunk.
const NATIVE: u16 = 1;
/// The highest VLAN (IEEE 802.1Q, table 9-2).
const MOST_VLAN: u16 = 4094;

/// How a port treats VLAN tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortMode {
    /// Tags are ignored and kept. Ports of this mode do not exchange frames with ports of the others.
    #[default]
    Plain,
    /// One VLAN, without tags.
    Access(u16),
    /// All VLANs of the switch, with tags; VLAN 1 without.
    Trunk,
}

/// The options of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchOptions {
    /// A learnt address expires after this time without a frame from it.
    pub age: Duration,
    /// Addresses learnt from one port.
    pub addresses: usize,
    /// Frames per second that are flooded for each port that they come from: broadcast, multicast, unknown destinations.
    pub flood_limit: u32,
}

impl Default for SwitchOptions {
    fn default() -> SwitchOptions {
        SwitchOptions {
            age: Duration::from_secs(300),
            addresses: 4096,
            flood_limit: 10_000,
        }
    }
}

/// What a switch dropped, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchCounters {
    /// Frames of the flood limit.
    pub flood_limited: u64,
    /// Arrived at a blocked port.
    pub blocked: u64,
    /// Their tag is not one of the port's VLANs.
    pub wrong_vlan: u64,
    /// Malformed, or with a reserved or local destination.
    pub dropped: u64,
}

#[derive(Debug)]
struct Port {
    mode: PortMode,
    blocked: bool,
    /// Its number in each VLAN's switch.
    ids: BTreeMap<u16, PortId>,
    /// Floods that are still allowed, and since when.
    tokens: u32,
    refilled: Duration,
}

#[derive(Debug)]
pub(crate) struct Switch {
    options: SwitchOptions,
    ports: Vec<Port>,
    /// By VLAN; plain ports have the VLAN zero.
    domains: BTreeMap<u16, Domain>,
    pub(crate) counters: SwitchCounters,
    selected: Vec<PortId>,
}

#[derive(Debug)]
struct Domain {
    learning: Learning,
    ports: BTreeMap<PortId, usize>,
}

impl Switch {
    pub(crate) fn new(options: SwitchOptions) -> Switch {
        Switch {
            options,
            ports: Vec::new(),
            domains: BTreeMap::new(),
            counters: SwitchCounters::default(),
            selected: Vec::new(),
        }
    }

    /// Adds a port; false if the VLAN is out of range.
    pub(crate) fn add_port(&mut self, mode: PortMode) -> bool {
        if let PortMode::Access(vlan) = mode
            && !(1..=MOST_VLAN).contains(&vlan)
        {
            return false;
        }
        self.ports.push(Port {
            mode,
            blocked: false,
            ids: BTreeMap::new(),
            tokens: self.options.flood_limit,
            refilled: Duration::ZERO,
        });
        self.rebuild();
        true
    }

    /// Sets which ports are blocked, and forgets all addresses.
    pub(crate) fn set_blocked(&mut self, blocked: &BTreeSet<usize>) {
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.blocked = blocked.contains(&index);
        }
        self.rebuild();
    }

    pub(crate) fn is_blocked(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|port| port.blocked)
    }

    /// Makes the tables anew, with the ports that are not blocked.
    fn rebuild(&mut self) {
        let mut vlans: BTreeSet<u16> = BTreeSet::new();
        for port in &self.ports {
            vlans.insert(match port.mode {
                PortMode::Plain => 0,
                PortMode::Access(vlan) => vlan,
                PortMode::Trunk => NATIVE,
            });
        }
        self.domains.clear();
        for vlan in vlans {
            let limits = Limits {
                ports: self.ports.len(),
                per_lan: self.options.addresses,
                age: self.options.age,
                ..Limits::default()
            };
            let mut learning = Learning::new(limits);
            let mut ports = BTreeMap::new();
            for (index, port) in self.ports.iter_mut().enumerate() {
                let member = match port.mode {
                    PortMode::Plain => vlan == 0,
                    PortMode::Access(own) => vlan == own,
                    PortMode::Trunk => vlan != 0,
                };
                port.ids.remove(&vlan);
                if member
                    && !port.blocked
                    && let Ok(id) = learning.add(Role::Lan)
                {
                    port.ids.insert(vlan, id);
                    ports.insert(id, index);
                }
            }
            self.domains.insert(vlan, Domain { learning, ports });
        }
    }

    /// A frame arrived at a port; what leaves is added to `out` with its port.
    pub(crate) fn receive(
        &mut self,
        at: usize,
        mut frame: Frame,
        now: Duration,
        out: &mut Vec<(usize, Frame)>,
    ) {
        let Some(port) = self.ports.get(at) else {
            return;
        };
        if port.blocked {
            self.counters.blocked += 1;
            return;
        }
        let tag = frame.tag();
        let vlan = match (port.mode, tag) {
            (PortMode::Plain, _) => Some(0),
            (PortMode::Access(own), None | Some(Tag { vlan: 0, .. })) => Some(own),
            (PortMode::Access(_), Some(_)) => None,
            (PortMode::Trunk, None | Some(Tag { vlan: 0, .. })) => Some(NATIVE),
            (PortMode::Trunk, Some(tag)) => Some(tag.vlan),
        };
        let found = vlan.and_then(|vlan| Some((vlan, self.domains.get_mut(&vlan)?)));
        let Some((vlan, domain)) = found else {
            self.counters.wrong_vlan += 1;
            return;
        };
        let Some(id) = port.ids.get(&vlan) else {
            self.counters.wrong_vlan += 1;
            return;
        };
        let forwarded = domain
            .learning
            .forward(*id, &frame.bytes, now, &mut self.selected);
        match forwarded {
            Ok(Verdict::Known) => {}
            Ok(Verdict::Unknown | Verdict::Group) => {
                if !take_token(&mut self.ports[at], self.options.flood_limit, now) {
                    self.counters.flood_limited += 1;
                    return;
                }
            }
            Ok(Verdict::Dropped(_)) | Err(_) => {
                self.counters.dropped += 1;
                return;
            }
        }
        if vlan != 0 {
            frame.remove_tag();
        }
        let priority = tag.map_or(0, |tag| tag.priority);
        let targets = self.selected.iter().filter_map(|id| domain.ports.get(id));
        let mut targets = targets.copied().peekable();
        while let Some(target) = targets.next() {
            let last = targets.peek().is_none();
            let mut copy = if last {
                core::mem::take(&mut frame)
            } else {
                frame.clone()
            };
            let tagged = self.ports[target].mode == PortMode::Trunk && vlan != NATIVE;
            if tagged {
                copy.insert_tag(Tag { vlan, priority });
            }
            out.push((target, copy));
        }
    }
}

/// A bucket that holds the floods of one second.
fn take_token(port: &mut Port, per_second: u32, now: Duration) -> bool {
    let passed = now.saturating_sub(port.refilled).as_nanos();
    let new = passed * u128::from(per_second) / 1_000_000_000;
    if new > 0 {
        let all = u128::from(port.tokens) + new;
        port.tokens = u32::try_from(all).unwrap_or(u32::MAX).min(per_second);
        port.refilled = now;
    }
    let taken = port.tokens.checked_sub(1);
    port.tokens = taken.unwrap_or(0);
    taken.is_some()
}

#[cfg(test)]
mod tests;
