//! A network interface: its MTU, address, whether it is up and whether its link is.
//! It promises to follow a renamed interface, and to stay with the network namespace in which it was found.
//! It refuses interfaces that are not Ethernet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice;

use crate::error::{Capability, Error, Result};
use crate::mac::Mac;
use crate::sys::{promiscuity, request};

/// How an interface stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Somebody switched it on.
    pub up: bool,
    /// It is up, and its cable leads somewhere.
    pub carrier: bool,
    /// Frames can pass, says the kernel (its operational state); that may take it a second to find out.
    pub running: bool,
}

/// An Ethernet interface of this machine.
#[derive(Debug)]
pub struct Interface {
    control: OwnedFd,
    route: OwnedFd,
    index: u32,
    /// As it was found, for when it is gone.
    name: String,
}

impl Interface {
    /// The interface with this name, in the thread's network namespace.
    pub fn named(name: &str) -> Result<Interface> {
        check(name, false)?;
        let refused = |call| move |errno| Error::of(call, name, errno, Capability::NetAdmin);
        let control = request::control().map_err(refused("socket"))?;
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

    /// Its number.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Its name now.
    pub fn name(&self) -> Result<String> {
        let name = netdevice::index_to_name(&self.control, self.index);
        name.map_err(|errno| self.refused("SIOCGIFNAME", errno))
    }

    /// The name that it was found with.
    pub(crate) fn first_name(&self) -> &str {
        &self.name
    }

    fn refused(&self, call: &'static str, errno: Errno) -> Error {
        Error::of(call, &self.name, errno, Capability::NetAdmin)
    }

    /// Asks, with the name of now.
    fn ask<T>(
        &self,
        call: &'static str,
        question: impl FnOnce(&OwnedFd, &str) -> core::result::Result<T, Errno>,
    ) -> Result<T> {
        question(&self.control, &self.name()?).map_err(|errno| self.refused(call, errno))
    }

    /// The longest packet, Ethernet header not counted.
    pub fn mtu(&self) -> Result<u32> {
        let mtu = self.ask("SIOCGIFMTU", request::mtu)?;
        Ok(u32::try_from(mtu).unwrap_or(0))
    }

    /// Sets the longest packet.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mtu = i32::try_from(mtu).map_err(|_| self.refused("SIOCSIFMTU", Errno::INVAL))?;
        self.ask("SIOCSIFMTU", |fd, name| request::set_mtu(fd, name, mtu))
    }

    /// Its address.
    pub fn mac(&self) -> Result<Mac> {
        let (kind, octets) = self.ask("SIOCGIFHWADDR", request::address)?;
        if kind != libc::ARPHRD_ETHER {
            let name = self.name.clone();
            return Err(Error::NotEthernet { name, kind });
        }
        Ok(Mac::new(octets))
    }

    /// Sets its address.
    pub fn set_mac(&self, mac: Mac) -> Result<()> {
        if !mac.is_station() {
            return Err(Error::NoStation { mac });
        }
        self.ask("SIOCSIFHWADDR", |fd, name| {
            request::set_address(fd, name, mac.octets())
        })
    }

    /// Switches it on or off.
    pub fn set_up(&self, up: bool) -> Result<()> {
        let flags = self.ask("SIOCGIFFLAGS", request::flags)?;
        let flags = if up {
            flags | libc::IFF_UP
        } else {
            flags & !libc::IFF_UP
        };
        self.ask("SIOCSIFFLAGS", |fd, name| {
            request::set_flags(fd, name, flags)
        })
    }

    /// It hands over everything that comes, what is for others included, because somebody wants that: its flags, a bridge that it
    /// is a port of, or a program that listens in.
    pub fn is_promiscuous(&self) -> Result<bool> {
        let count = promiscuity::of(&self.route, self.index);
        let count = count.map_err(|errno| self.refused("RTM_GETLINK", errno))?;
        Ok(count > 0)
    }

    /// How it stands.
    pub fn link(&self) -> Result<Link> {
        let flags = self.ask("SIOCGIFFLAGS", request::flags)?;
        let (up, running) = (flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0);
        let carrier = match self.ask("ETHTOOL_GLINK", request::carrier) {
            // A driver that knows of no cable.
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

/// The socket that questions go through; it is never readable.
impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Queues of one interface.
const MOST_QUEUES: usize = 64;

pub(crate) fn check_queues(got: usize) -> Result<()> {
    let most = MOST_QUEUES;
    match (1..=most).contains(&got) {
        true => Ok(()),
        false => Err(Error::Queues { got, most }),
    }
}

/// The kernel's own rule for names; a pattern has one `%d`.
pub(crate) fn check(name: &str, pattern: bool) -> Result<()> {
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
        Err(Error::Name { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_the_kernel_sees_them() {
        for name in ["a", "tap%d", "exactly15bytes0", "eth0.5"] {
            assert_eq!(check(name, true), Ok(()), "{name}");
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
            assert!(check(name, true).is_err(), "{name}");
        }
        assert!(check("tap%d", false).is_err());
    }

    #[test]
    fn what_is_not_there_or_not_ethernet_says_so() {
        let gone = Interface::named("no-such-if").unwrap_err();
        assert!(gone.to_string().contains("no-such-if"), "{gone}");
        let loopback = Interface::named("lo").unwrap_err();
        assert!(matches!(loopback, Error::NotEthernet { kind, .. } if kind != 1));
    }
}
