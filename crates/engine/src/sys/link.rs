//! The state of the network links: whether the interfaces of given addresses are up, and a socket that tells of changes (rtnetlink(7)).
//! The socket only tells that some link or address of its network namespace has changed; the state is queried afterwards. Nothing blocks.

use core::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SocketType};

use super::fd::{FLAGS, Fd};
use super::{Error, Result};

/// Notifications about links and about addresses of both families.
const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
/// Messages taken per call: others may change interfaces faster than they are read.
const MAX_MESSAGES: usize = 64;

/// A socket that is readable after a change of a link or an address.
#[derive(Debug)]
pub struct LinkSocket {
    fd: Fd,
}

impl LinkSocket {
    /// For all links of the calling thread's network namespace.
    pub fn open() -> Result<LinkSocket> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Protocol 0 of this family, `NETLINK_ROUTE`, is the default.
        let fd = net::socket_with(family, kind, FLAGS, None);
        let fd = Fd::from(fd.map_err(Error::of("socket"))?);
        let groups = SocketAddrNetlink::new(0, GROUPS as u32);
        net::bind(&fd, &groups).map_err(Error::of("bind"))?;
        Ok(LinkSocket { fd })
    }

    /// Takes the messages that are there, unread. Lost ones (`ENOBUFS`) are no error: the state is queried in any case.
    pub fn drain(&self) {
        let mut some = [0u8; 64];
        for _ in 0..MAX_MESSAGES {
            let taken = net::recv(&self.fd, &mut some[..], RecvFlags::TRUNC);
            if !matches!(taken, Ok(_) | Err(Errno::NOBUFS | Errno::INTR)) {
                return;
            }
        }
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether an interface that has one of these addresses is up and has a carrier. Not to be called under a lock.
pub fn is_link_up(addresses: &[IpAddr]) -> Result<bool> {
    let running = super::running_interfaces()?;
    // 127.0.0.0/8 belongs to the loopback interface, though it lists one address only.
    let owns = |ip: &IpAddr, own: &IpAddr| ip == own || (ip.is_loopback() && own.is_loopback());
    Ok(addresses
        .iter()
        .any(|own| running.iter().any(|interface| owns(&interface.ip, own))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn link_of_loopback_is_up() {
        let second = Ipv4Addr::new(127, 0, 0, 2);
        assert!(is_link_up(&[second.into()]).unwrap());
    }

    #[test]
    fn link_of_unknown_address_is_down() {
        let unknown = Ipv4Addr::new(198, 51, 100, 1);
        assert!(!is_link_up(&[unknown.into()]).unwrap());
        assert!(!is_link_up(&[]).unwrap());
    }
}
