//! The setting `device`: which addresses the adapter has.
//! An explicit choice is used as it is or fails; it is never replaced. The addresses of the machine are an argument.

use core::net::{IpAddr, Ipv4Addr};

/// One address of the machine and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// As `ip link` shows it.
    pub name: String,
    /// One of its addresses.
    pub ip: IpAddr,
}

/// The setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// All addresses of the first interface that has one that other hosts can reach, else 127.0.0.1.
    Auto,
    /// All addresses of an interface.
    Interface(String),
    /// These.
    Addresses(Vec<IpAddr>),
}

impl Device {
    /// The addresses, out of those of the machine that can be used; none if the named interface has no such one.
    pub(crate) fn resolve(
        &self,
        machine: &[Interface],
        can_use: impl Fn(IpAddr) -> bool,
    ) -> Option<Vec<IpAddr>> {
        // A link-local address is ambiguous without the index of its interface.
        let usable = |i: &&Interface| !link_local(i.ip) && can_use(i.ip);
        let of_interface = |name: &str| {
            let its = machine.iter().filter(|i| i.name == name);
            its.filter(usable).map(|i| i.ip).collect::<Vec<IpAddr>>()
        };
        match self {
            Device::Auto => {
                let mut others = machine.iter().filter(|i| !i.ip.is_loopback());
                Some(match others.find(usable) {
                    Some(first) => of_interface(&first.name),
                    None => vec![Ipv4Addr::LOCALHOST.into()],
                })
            }
            Device::Interface(name) => Some(of_interface(name)).filter(|its| !its.is_empty()),
            // Not compared with the machine's addresses: it may get them later, and `bind` fails if it has not.
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
