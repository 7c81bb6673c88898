//! A network interface: MTU, address, flags and link state. It is identified by its index, so that a renamed interface is followed,
//! and it stays in the network namespace in which it was opened. Only Ethernet interfaces are accepted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice;

use crate::error::{Capability, Error, Result};
use crate::mac::Mac;
use crate::sys::{ifreq, promiscuity};

/// The link state of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// It is administratively up (`IFF_UP`).
    pub up: bool,
    /// It is up and has a carrier.
    pub carrier: bool,
    /// It is operational (`IFF_RUNNING`); the kernel may take a second to notice a change.
    pub running: bool,
}

/// An Ethernet interface of this machine.
#[derive(Debug)]
pub struct Interface {
    control: OwnedFd,
    route: OwnedFd,
    index: u32,
    /// The name at the time of opening, for error messages when the interface is gone.
    name: String,
}

impl Interface {
    /// The interface with this name, in the calling thread's network namespace.
    pub fn named(name: &str) -> Result<Interface> {
        check_name(name, false)?;
        let refused = |call| move |errno| Error::of(call, name, errno, Capability::NetAdmin);
        let control = ifreq::control().map_err(refused("socket"))?;
        let route = promiscuity::open().map_err(refused("socket AF_NETLINK"))?;
        let index = netdevice::name_to_index(&control, name).map_err(refused("SIOCGIFINDEX"))?;
        let interface = Interface {
            control,
            route,
            index,
            name: name.to_owned(),
        };
        interface.mac().map(|_| interface)
    }

    /// Its interface index.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Its current name.
    pub fn name(&self) -> Result<String> {
        let name = netdevice::index_to_name(&self.control, self.index);
        name.map_err(|errno| self.refused("SIOCGIFNAME", errno))
    }

    /// Its name when it was opened.
    pub(crate) fn initial_name(&self) -> &str {
        &self.name
    }

    fn refused(&self, call: &'static str, errno: Errno) -> Error {
        Error::of(call, &self.name, errno, Capability::NetAdmin)
    }

    /// Calls `question` with the current name, which the ioctls take.
    fn query<T>(
        &self,
        call: &'static str,
        question: impl FnOnce(&OwnedFd, &str) -> core::result::Result<T, Errno>,
    ) -> Result<T> {
        question(&self.control, &self.name()?).map_err(|errno| self.refused(call, errno))
    }

    /// The MTU: the longest packet, without the Ethernet header.
    pub fn mtu(&self) -> Result<u32> {
        let mtu = self.query("SIOCGIFMTU", ifreq::mtu)?;
        Ok(u32::try_from(mtu).unwrap_or(0))
    }

    /// Sets the MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mtu = i32::try_from(mtu).map_err(|_| self.refused("SIOCSIFMTU", Errno::INVAL))?;
        self.query("SIOCSIFMTU", |fd, name| ifreq::set_mtu(fd, name, mtu))
    }

    /// Its MAC address.
    pub fn mac(&self) -> Result<Mac> {
        let (kind, octets) = self.query("SIOCGIFHWADDR", ifreq::address)?;
        if kind != libc::ARPHRD_ETHER {
            let name = self.name.clone();
            return Err(Error::NotEthernet { name, kind });
        }
        Ok(Mac::new(octets))
    }

    /// Sets its MAC address.
    pub fn set_mac(&self, mac: Mac) -> Result<()> {
        if !mac.is_station() {
            return Err(Error::NotUnicast { mac });
        }
        self.query("SIOCSIFHWADDR", |fd, name| {
            ifreq::set_address(fd, name, mac.octets())
        })
    }

    /// Sets or clears `IFF_UP`.
    pub fn set_up(&self, up: bool) -> Result<()> {
        let flags = self.query("SIOCGIFFLAGS", ifreq::flags)?;
        let flags = if up {
            flags | libc::IFF_UP
        } else {
            flags & !libc::IFF_UP
        };
        self.query("SIOCSIFFLAGS", |fd, name| ifreq::set_flags(fd, name, flags))
    }

    /// It is promiscuous, that is, delivers frames to other stations too: by its flags, as a port of a bridge, or for a program that
    /// captures packets.
    pub fn is_promiscuous(&self) -> Result<bool> {
        let count = promiscuity::count(&self.route, self.index);
        let count = count.map_err(|errno| self.refused("RTM_GETLINK", errno))?;
        Ok(count > 0)
    }

    /// The link state.
    pub fn link(&self) -> Result<Link> {
        let flags = self.query("SIOCGIFFLAGS", ifreq::flags)?;
        let (up, running) = (flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0);
        let carrier = match self.query("ETHTOOL_GLINK", ifreq::carrier) {
            // The driver does not report a carrier.
            Err(Error::Refused {
                errno: Errno::OPNOTSUPP,
                ..
            }) => running,
            answer => answer?,
        };
        Ok(Link {
            up,
            carrier,
            running,
        })
    }
}

/// The socket of the ioctls; it is never readable.
impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Limit on the queues of one interface.
const MOST_QUEUES: usize = 64;

pub(crate) fn check_queues(got: usize) -> Result<()> {
    let most = MOST_QUEUES;
    match (1..=most).contains(&got) {
        true => Ok(()),
        false => Err(Error::QueueCount { got, most }),
    }
}

/// The kernel's own rule for names; a pattern has one `%d`.
pub(crate) fn check_name(name: &str, pattern: bool) -> Result<()> {
    let plain = match name.split_once("%d") {
        Some((before, after)) if pattern => !before.contains('%') && !after.contains('%'),
        _ => !name.contains('%'),
    };
    let wrong = |b: u8| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace();
    let fits = (1..libc::IFNAMSIZ).contains(&name.len()) && name != "." && name != "..";
    if plain && fits && !name.bytes().any(wrong) {
        Ok(())
    } else {
        let name = name.to_owned();
        Err(Error::InvalidName { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_validated() {
        for name in ["a", "tap%d", "exactly15bytes0", "eth0.5"] {
            assert_eq!(check_name(name, true), Ok(()), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a:1",
            "a b",
            "a\0",
            "sixteen-bytes-00",
            "tap%d%d",
            "%s",
            "50%",
        ] {
            assert!(check_name(name, true).is_err(), "{name}");
        }
        assert!(check_name("tap%d", false).is_err());
    }

    #[test]
    fn missing_and_non_ethernet_interfaces_are_errors() {
        let gone = Interface::named("no-such-if").unwrap_err();
        assert!(gone.to_string().contains("no-such-if"), "{gone}");
        let loopback = Interface::named("lo").unwrap_err();
        assert!(matches!(loopback, Error::NotEthernet { kind, .. } if kind != 1));
    }
}
