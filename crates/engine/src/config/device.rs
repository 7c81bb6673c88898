//! Which addresses the adapter has.
//! It promises that an explicit choice is kept or refused, never replaced.
//! It refuses to look for addresses itself: it is told what the machine has.

use core::net::{IpAddr, Ipv4Addr};

/// One address of the machine and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// As `ip link` shows it.
    pub name: String,
    /// One of its addresses.
    pub ip: IpAddr,
}

/// The choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The first address that others can reach, else loopback.
    Auto,
    /// All addresses of an interface.
    Interface(String),
    /// These.
    Addresses(Vec<IpAddr>),
}

impl Device {
    /// The addresses, of those that the machine has; none if the choice names an interface that it has not.
    pub fn resolve(&self, machine: &[Interface]) -> Option<Vec<IpAddr>> {
        // Without the number of its interface a link-local address leads nowhere.
        let usable = machine.iter().filter(|i| !link_local(i.ip));
        match self {
            Device::Auto => {
                let first = usable.map(|i| i.ip).find(|ip| !ip.is_loopback());
                Some(vec![first.unwrap_or(Ipv4Addr::LOCALHOST.into())])
            }
            Device::Interface(name) => {
                let its: Vec<IpAddr> = usable.filter(|i| i.name == *name).map(|i| i.ip).collect();
                (!its.is_empty()).then_some(its)
            }
            // Whether the machine has them is seen when they are bound; it may get them later.
            Device::Addresses(addresses) => Some(addresses.clone()),
        }
    }
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
