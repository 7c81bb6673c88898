//! A UDP socket for unreliable datagrams of the `roce` personality.
//! No call blocks. A datagram longer than the buffer is reported with its true length.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendFlags, SocketType, sockopt};

use super::fd::Fd;
use super::listener::bind_socket;
use super::{Error, Result, interface_of};

/// A datagram socket.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: Fd,
}

impl DatagramSocket {
    /// Binds to `at` exclusively: sharing a UDP port would split its datagrams between programs.
    pub fn bind(at: SocketAddr) -> Result<DatagramSocket> {
        let fd = bind_socket(at, SocketType::DGRAM, false)?;
        Ok(DatagramSocket { fd })
    }

    /// Receives what is sent to a multicast group, on the interfaces that have these addresses. Other sockets may do the same at
    /// the same port, and each gets its own copy.
    pub fn bind_group(group: IpAddr, port: u16, own: &[IpAddr]) -> Result<DatagramSocket> {
        let family = |ip: &&IpAddr| ip.is_ipv4() == group.is_ipv4();
        let mut joined = false;
        let fd = match group {
            IpAddr::V4(v4) => {
                let fd = bind_socket(SocketAddr::new(group, port), SocketType::DGRAM, true)?;
                for ip in own.iter().filter(family) {
                    if let IpAddr::V4(own) = ip {
                        joined |= is_member(sockopt::set_ip_add_membership(&fd, &v4, own))?;
                    }
                }
                fd
            }
            IpAddr::V6(v6) => {
                let all = own.iter().filter(family).map(|ip| interface_of(*ip));
                let all = all.collect::<Result<Vec<_>>>()?;
                let first = all.iter().flatten().next().copied().unwrap_or(0);
                // Link-local groups exist once on every link, so the link must be named.
                let at = SocketAddrV6::new(v6, port, 0, first);
                let fd = bind_socket(at.into(), SocketType::DGRAM, true)?;
                for interface in all.into_iter().flatten() {
                    joined |= is_member(sockopt::set_ipv6_add_membership(&fd, &v6, interface))?;
                }
                fd
            }
        };
        if joined {
            Ok(DatagramSocket { fd })
        } else {
            Err(Error::new("setsockopt IP_ADD_MEMBERSHIP", Errno::NODEV))
        }
    }

    /// Sends multicast by the interface that has this address, and loops it back to members on this host.
    pub fn set_multicast_interface(&self, own: IpAddr) -> Result<()> {
        let done = match own {
            IpAddr::V4(v4) => sockopt::set_ip_multicast_if(&self.fd, &v4)
                .and_then(|()| sockopt::set_ip_multicast_loop(&self.fd, true)),
            IpAddr::V6(_) => {
                let interface = interface_of(own)?.unwrap_or(0);
                sockopt::set_ipv6_multicast_if(&self.fd, interface)
                    .and_then(|()| sockopt::set_ipv6_multicast_loop(&self.fd, true))
            }
        };
        done.map_err(Error::of("setsockopt IP_MULTICAST_IF"))
    }

    /// Sets the receive buffer size; the system may allow less.
    pub fn set_recv_buffer(&self, bytes: usize) {
        // A privileged process may exceed the limit. With the default size, more datagrams of a burst are lost; nothing else
        // changes.
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    /// Sends a datagram; false if there is no room now. A pending error of an earlier one (such as port unreachable) is skipped.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<bool> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match retry_on_intr(|| net::sendto(&self.fd, bytes, flags, &to)) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(Errno::CONNREFUSED) => {}
                Err(errno) => return Err(Error::new("sendto", errno)),
            }
        }
    }

    /// Receives a datagram: its true length, which may exceed the buffer, and its source; none if there is none.
    pub fn receive(&self, room: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        loop {
            match retry_on_intr(|| net::recvfrom(&self.fd, &mut *room, flags)) {
                Ok((_, whole, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    if let Some(from) = from {
                        return Ok(Some((whole, from)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNREFUSED) => {}
                Err(errno) => return Err(Error::new("recvfrom", errno)),
            }
        }
    }

    /// Its local address.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        let name = net::getsockname(&self.fd).map_err(Error::of("getsockname"))?;
        SocketAddr::try_from(name).map_err(Error::of("getsockname"))
    }
}

/// Whether the socket is a member of the group now: two addresses of one interface join twice.
fn is_member(answer: core::result::Result<(), Errno>) -> Result<bool> {
    match answer {
        Ok(()) | Err(Errno::ADDRINUSE) => Ok(true),
        Err(Errno::NODEV | Errno::ADDRNOTAVAIL) => Ok(false),
        Err(errno) => Err(Error::new("setsockopt IP_ADD_MEMBERSHIP", errno)),
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
