//! A non-blocking UDP socket that receives and sends many datagrams per call, with GSO and GRO where the kernel has them. An ICMP
//! error concerns the datagram that caused it and never ends the socket. Datagrams that the kernel cannot take now stay with the
//! caller: nothing is queued here.

use std::cell::Cell;
use std::io::{Error, IoSlice, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::inbox::Inbox;
use crate::sys::{mmsg, udp};

/// Length of the longest datagram, over IPv4 or IPv6.
const MAX_DATAGRAM: usize = 65_507;
/// Most bytes and datagrams of one GSO message: what every kernel with GSO accepts.
const MAX_GSO: (usize, usize) = (MAX_DATAGRAM, 64);
/// Pending errors of earlier datagrams that one receive call skips.
const MOST_ERRORS: usize = 16;

/// The result of [`Datagrams::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendOutcome {
    /// Datagrams that were sent or lost: the next call starts behind them.
    pub done: usize,
    /// Of those, datagrams that the kernel rejected: too long, no route, or denied by a filter.
    pub lost: usize,
    /// The kernel can take no more now: wait until the socket is writable.
    pub full: bool,
}

/// The socket.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    /// The destination of all datagrams, if the socket is connected.
    peer: Option<SocketAddr>,
    /// Datagrams to be sent are joined (GSO).
    gso: Cell<bool>,
}

/// Requests buffer sizes of a socket, each way; the kernel may grant less.
pub(crate) fn set_buffer_sizes(fd: BorrowedFd<'_>, receive: usize, send: usize) {
    // The forced variant exceeds `rmem_max` and needs CAP_NET_ADMIN. With a smaller buffer more of a burst is lost.
    if sockopt::set_socket_recv_buffer_size_force(fd, receive).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, receive);
    }
    let _ = sockopt::set_socket_send_buffer_size(fd, send);
}

impl Datagrams {
    /// A socket bound to this address, which receives from any sender.
    pub fn bind(local: SocketAddr) -> Result<Datagrams> {
        Datagrams::with(UdpSocket::bind(local)?, None)
    }

    /// A socket connected to one peer.
    pub fn connect(peer: SocketAddr) -> Result<Datagrams> {
        Datagrams::with(connected_socket(peer)?, Some(peer))
    }

    fn with(socket: UdpSocket, peer: Option<SocketAddr>) -> Result<Datagrams> {
        socket.set_nonblocking(true)?;
        let v6 = socket.local_addr()?.is_ipv6();
        udp::allow_fragments(socket.as_fd(), v6)?;
        // An old kernel has neither GRO nor GSO: datagrams arrive one by one, and the first joined message that it rejects turns
        // joining off.
        let _ = udp::enable_gro(socket.as_fd());
        Ok(Datagrams {
            socket,
            peer,
            gso: Cell::new(true),
        })
    }

    /// Its own address.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Requests buffers of so many bytes, each way; the kernel may grant less.
    pub fn set_buffer_sizes(&self, receive: usize, send: usize) {
        set_buffer_sizes(self.socket.as_fd(), receive, send);
    }

    /// Turns joining of sent datagrams on or off; it is also turned off when the kernel rejects a joined message.
    pub fn set_gso(&self, joins: bool) {
        self.gso.set(joins);
    }

    /// Sent datagrams are joined.
    #[cfg(test)]
    pub(crate) fn is_gso_enabled(&self) -> bool {
        self.gso.get()
    }

    /// An inbox with `rooms` buffers, each long enough for any datagram or GRO message.
    pub fn inbox(&self, rooms: usize) -> Inbox {
        Inbox::new(rooms, usize::from(u16::MAX))
    }

    /// Replaces the inbox's content by what has arrived; returns the number of messages, each of one or more datagrams.
    pub fn receive(&self, inbox: &mut Inbox) -> Result<usize> {
        let mut errors = 0;
        let came = loop {
            let (rooms, room, arrivals) = inbox.refill();
            match mmsg::receive(self.socket.as_fd(), rooms, room, arrivals) {
                Ok(came) => break came,
                Err(Errno::AGAIN) => break 0,
                Err(Errno::INTR) => {}
                // An ICMP error of a datagram that was sent before.
                Err(errno) if is_datagram_error(errno) && errors < MOST_ERRORS => errors += 1,
                Err(errno) if is_datagram_error(errno) => break 0,
                Err(errno) => return Err(errno.into()),
            }
        };
        inbox.set_received(came);
        Ok(came)
    }

    /// Sends `count` datagrams until the kernel can take no more. On a connected socket all go to its peer and the address is ignored.
    pub fn send<'a>(
        &self,
        count: usize,
        datagram: impl Fn(usize) -> (SocketAddr, &'a [u8]),
    ) -> Result<SendOutcome> {
        let mut sent = SendOutcome::default();
        let mut joins = self.gso.get();
        let mut again = true;
        while sent.done < count && !sent.full {
            let rest = |at: usize| (sent.done + at < count).then(|| datagram(sent.done + at));
            let plan = SendPlan::new(rest, self.peer.is_some(), joins);
            match plan.send(self.socket.as_fd()) {
                Ok(went) => {
                    sent.done += plan.sizes[..went.min(mmsg::MAX_MESSAGES)]
                        .iter()
                        .sum::<usize>();
                    (joins, again) = (self.gso.get(), true);
                }
                Err(Errno::AGAIN) => sent.full = true,
                Err(Errno::INTR) => {}
                // The kernel or the interface cannot join, or not at this length.
                Err(Errno::INVAL | Errno::MSGSIZE) if plan.sizes[0] > 1 => joins = false,
                Err(Errno::IO | Errno::OPNOTSUPP | Errno::NOPROTOOPT) if plan.sizes[0] > 1 => {
                    self.gso.set(false);
                    joins = false;
                }
                // The pending error may be an earlier datagram's, and this one not sent for that reason only: try it once more.
                Err(errno) if is_datagram_error(errno) && again => again = false,
                Err(errno) if is_datagram_error(errno) => {
                    sent.done += plan.sizes[0];
                    sent.lost += plan.sizes[0];
                    again = true;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(sent)
    }
}

/// A socket that is connected to this peer.
fn connected_socket(peer: SocketAddr) -> Result<UdpSocket> {
    let any = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket)
}

/// The longest datagram to this peer that needs no fragmentation, by the path MTU that the kernel knows.
pub fn max_unfragmented(peer: SocketAddr) -> Result<usize> {
    let socket = connected_socket(peer)?;
    let mtu = udp::path_mtu(socket.as_fd(), peer.is_ipv6()).map_err(Error::from)?;
    // An IPv4 header without options or an IPv6 header, and UDP's.
    let headers = if peer.is_ipv6() { 40 + 8 } else { 20 + 8 };
    Ok(mtu.saturating_sub(headers).min(MAX_DATAGRAM))
}

/// The error concerns a single datagram, either the one being sent or an earlier one; the socket is still usable.
fn is_datagram_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NETDOWN
            | Errno::NONET
            | Errno::ADDRNOTAVAIL
            | Errno::AFNOSUPPORT
            | Errno::PERM
            | Errno::ACCESS
            | Errno::MSGSIZE
            | Errno::INVAL
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
    )
}

/// The messages of one call: runs of datagrams to one destination, all of one length but for a shorter last one.
struct SendPlan<'a> {
    headers: [mmsg::TxMessage; mmsg::MAX_MESSAGES],
    /// Datagrams in each message.
    sizes: [usize; mmsg::MAX_MESSAGES],
    messages: usize,
    pieces: [IoSlice<'a>; mmsg::MAX_MESSAGES],
}

impl<'a> SendPlan<'a> {
    fn new(
        datagram: impl Fn(usize) -> Option<(SocketAddr, &'a [u8])>,
        connected: bool,
        joins: bool,
    ) -> SendPlan<'a> {
        let blank = mmsg::TxMessage {
            to: None,
            pieces: 0,
            segment: None,
        };
        let mut plan = SendPlan {
            headers: [blank; mmsg::MAX_MESSAGES],
            sizes: [0; mmsg::MAX_MESSAGES],
            messages: 0,
            pieces: [IoSlice::new(&[]); mmsg::MAX_MESSAGES],
        };
        // Destination of the run, length of its datagrams, and bytes in all; `None` after a shorter datagram, which ends a run.
        let mut run: Option<(SocketAddr, usize, usize)> = None;
        for at in 0..mmsg::MAX_MESSAGES {
            let Some((to, bytes)) = datagram(at) else {
                break;
            };
            plan.pieces[at] = IoSlice::new(bytes);
            let len = bytes.len();
            let (most, many) = MAX_GSO;
            let joined = |(place, each, all): &(SocketAddr, usize, usize)| {
                let fits = all + len <= most && plan.sizes[plan.messages - 1] < many;
                joins && fits && *place == to && len > 0 && len <= *each
            };
            match run.filter(joined) {
                Some((_, each, all)) => {
                    let message = plan.messages - 1;
                    plan.sizes[message] += 1;
                    plan.headers[message].segment = u16::try_from(each).ok();
                    run = (len == each).then_some((to, each, all + len));
                }
                None => {
                    plan.headers[plan.messages].to = (!connected).then(|| mmsg::Address::ip(to));
                    plan.sizes[plan.messages] = 1;
                    plan.messages += 1;
                    run = Some((to, len, len));
                }
            }
            plan.headers[plan.messages - 1].pieces += 1;
        }
        plan
    }

    fn send(&self, fd: BorrowedFd<'_>) -> core::result::Result<usize, Errno> {
        mmsg::send(fd, &self.headers[..self.messages], &self.pieces)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
