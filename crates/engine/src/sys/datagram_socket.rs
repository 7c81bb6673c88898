//! A UDP socket for unreliable datagrams of the `roce` personality, and for packets of RoCEv2.
//! No call blocks. A datagram longer than the buffer is reported as such, and an error of an earlier datagram (such as port unreachable)
//! is skipped.

mod messages;

use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendFlags, SocketType, sockopt};

use super::fd::Fd;
use super::listener::{bind_socket, bind_socket_with};
use super::receive_batch::ReceiveBatch;
use super::segments::{MAX_STEERED, SegmentsOutcome};
use super::{Error, Result, interface_of};
use messages::{receive_messages, send_segments};

/// A datagram socket.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: Fd,
    /// A datagram that is longer than the network allows leaves in fragments.
    may_fragment: bool,
}

impl DatagramSocket {
    /// Binds to `at` exclusively: sharing a UDP port would split its datagrams between programs.
    ///
    /// Datagrams are sent with "do not fragment", so that their IPv4 identification is 0, which the ICRC covers. From the first one on that
    /// is longer than the network allows they may be fragmented, and have other identifications.
    pub fn bind(at: SocketAddr) -> Result<DatagramSocket> {
        let fd = bind_socket(at, SocketType::DGRAM, false)?;
        if at.is_ipv4() {
            sockopt::set_ip_mtu_discover(&fd, sockopt::Ipv4PathMtuDiscovery::DO)
                .map_err(Error::of("setsockopt IP_MTU_DISCOVER"))?;
        }
        Ok(DatagramSocket {
            fd,
            may_fragment: true,
        })
    }

    /// Binds to `at` for packets of RoCEv2, as a member of the group of this user's sockets at this address: a packet is steered to one of
    /// them (see [`steer_by_qpn`](DatagramSocket::steer_by_qpn)). Fails with EADDRINUSE if another user or the kernel has the port.
    ///
    /// Packets are sent with "do not fragment", so that their IPv4 identification is 0, which the ICRC covers. Consecutive packets of one
    /// sender and one length may arrive as one message, where the kernel can do that (UDP_GRO).
    pub fn bind_roce(at: SocketAddr) -> Result<DatagramSocket> {
        let fd = bind_socket_with(at, SocketType::DGRAM, |fd| {
            sockopt::set_socket_reuseport(fd, true).map_err(Error::of("setsockopt SO_REUSEPORT"))
        })?;
        let socket = DatagramSocket {
            fd,
            may_fragment: false,
        };
        let done = match at {
            SocketAddr::V4(_) => {
                sockopt::set_ip_mtu_discover(&socket.fd, sockopt::Ipv4PathMtuDiscovery::DO)
            }
            SocketAddr::V6(_) => {
                sockopt::set_ipv6_mtu_discover(&socket.fd, sockopt::Ipv6PathMtuDiscovery::DO)
            }
        };
        done.map_err(Error::of("setsockopt IP_MTU_DISCOVER"))?;
        // A kernel before Linux 5.0 does not have it, and packets arrive one by one.
        let _ = socket.set_int(libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(socket)
    }

    /// Has the kernel choose the member of the group that a packet goes to by bits 8 to 13 of the queue pair number in it: the member that
    /// joined as that one, counted from 0. Packets for other values are spread by a hash of their addresses.
    pub fn steer_by_qpn(&self) -> Result<()> {
        const DEST_QP: u32 = 4;
        let step = |code: u32, k: u32| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: 0,
            k,
        };
        let mut program = [
            // The word of the BTH that ends with the number; a shorter packet ends the program with 0.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, DEST_QP),
            step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 8),
            step(
                libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
                u32::from(MAX_STEERED - 1),
            ),
            step(libc::BPF_RET | libc::BPF_A, 0),
        ];
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: `program` names an array of this stack frame with its length; the kernel copies both during the call.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                &raw const program,
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        match refused {
            0 => Ok(()),
            _ => Err(Error::last("setsockopt SO_ATTACH_REUSEPORT_CBPF")),
        }
    }

    fn set_int(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> Result<()> {
        // SAFETY: the kernel reads one int, `value`, which outlives the call.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.fd.as_fd().as_raw_fd(),
                level,
                option,
                &raw const value,
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        match refused {
            0 => Ok(()),
            _ => Err(Error::last("setsockopt")),
        }
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
            Ok(DatagramSocket {
                fd,
                may_fragment: false,
            })
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
        let mut may_fragment = self.may_fragment && to.is_ipv4();
        loop {
            match retry_on_intr(|| net::sendto(&self.fd, bytes, flags, &to)) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(Errno::CONNREFUSED) => {}
                Err(Errno::MSGSIZE) if may_fragment => {
                    may_fragment = false;
                    sockopt::set_ip_mtu_discover(&self.fd, sockopt::Ipv4PathMtuDiscovery::WANT)
                        .map_err(Error::of("setsockopt IP_MTU_DISCOVER"))?;
                }
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

    /// Sends the bytes as datagrams of `segment` bytes, the last of which may be shorter, with one call (UDP_SEGMENT): at most
    /// [`MAX_SEGMENTS`](super::segments::MAX_SEGMENTS) datagrams and [`MAX_SEGMENTS_LEN`](super::segments::MAX_SEGMENTS_LEN) bytes. Their IPv4 identifications count up from 0.
    pub fn send_segments(
        &self,
        bytes: &[u8],
        segment: usize,
        to: SocketAddr,
    ) -> Result<SegmentsOutcome> {
        loop {
            match send_segments(self.fd.as_fd(), bytes, segment, to) {
                Ok(()) => return Ok(SegmentsOutcome::Sent),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(SegmentsOutcome::Full),
                Err(Errno::INTR | Errno::CONNREFUSED) => {}
                // No such option, no checksums in hardware, longer than the MTU.
                Err(
                    Errno::INVAL
                    | Errno::IO
                    | Errno::MSGSIZE
                    | Errno::OPNOTSUPP
                    | Errno::NOPROTOOPT,
                ) => return Ok(SegmentsOutcome::Unsupported),
                Err(errno) => return Err(Error::new("sendmsg", errno)),
            }
        }
    }

    /// Replaces what is in the buffers by the messages that have arrived; false if there are none.
    pub fn receive_batch(&self, batch: &mut ReceiveBatch) -> Result<bool> {
        loop {
            match receive_messages(self.fd.as_fd(), batch) {
                Ok(()) => return Ok(true),
                Err(Errno::AGAIN) => {
                    batch.set_received(0);
                    return Ok(false);
                }
                Err(Errno::INTR | Errno::CONNREFUSED) => {}
                Err(errno) => return Err(Error::new("recvmmsg", errno)),
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
