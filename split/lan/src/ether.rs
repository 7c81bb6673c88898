//! Datagrams in Ethernet frames of one EtherType on one interface, through a non-blocking packet socket. Two bytes behind the type
//! hold the length of the datagram, so that padding is removed. Only untagged unicast frames to this station are delivered, and a
//! datagram that is too long for the interface's MTU is counted as lost.

pub(crate) mod header;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::datagrams::SendOutcome;
use crate::error::{Capability, Error, Result};
use crate::inbox::Inbox;
use crate::interface::Interface;
use crate::mac::Mac;
use crate::sys::{mmsg, packet};
use header::{ETH_HLEN, Header, LENGTH_FIELD};

/// A packet socket for frames of one EtherType.
#[derive(Debug)]
pub struct EtherSocket {
    interface: Interface,
    fd: OwnedFd,
    mac: Mac,
    kind: u16,
}

impl EtherSocket {
    /// Opens the interface with this name, in the calling thread's network namespace, for frames of this EtherType.
    pub fn open(name: &str, kind: u16) -> Result<EtherSocket> {
        let interface = Interface::named(name)?;
        let mac = interface.mac()?;
        let refused = |call, errno| Error::of(call, name, errno, Capability::NetRaw);
        let fd = packet::open().map_err(|errno| refused("socket AF_PACKET", errno))?;
        let bound = mmsg::Address::link(interface.index(), kind).bind(fd.as_fd());
        bound.map_err(|errno| refused("bind AF_PACKET", errno))?;
        Ok(EtherSocket {
            interface,
            fd,
            mac,
            kind,
        })
    }

    /// The interface.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The source address of sent frames: the interface's address at the time of [`EtherSocket::open`].
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// The longest datagram that fits a frame at the current MTU.
    pub fn max_datagram(&self) -> Result<usize> {
        Ok((self.interface.mtu()? as usize).saturating_sub(LENGTH_FIELD))
    }

    /// An inbox with `rooms` buffers, each long enough for a frame at the current MTU.
    pub fn inbox(&self, rooms: usize) -> Result<Inbox> {
        Ok(Inbox::new(
            rooms,
            ETH_HLEN + LENGTH_FIELD + self.max_datagram()?,
        ))
    }

    /// Requests buffers of so many bytes, each way; the kernel may grant less.
    pub fn set_buffer_sizes(&self, receive: usize, send: usize) {
        crate::datagrams::set_buffer_sizes(self.fd.as_fd(), receive, send);
    }

    fn refused(&self, call: &'static str, errno: Errno) -> Error {
        Error::of(
            call,
            self.interface.initial_name(),
            errno,
            Capability::NetRaw,
        )
    }

    /// Replaces the inbox's content by what has arrived; returns the number of frames.
    pub fn receive(&self, inbox: &mut Inbox) -> Result<usize> {
        let came = loop {
            let (rooms, room, arrivals) = inbox.refill();
            match mmsg::receive(self.fd.as_fd(), rooms, room, arrivals) {
                Ok(came) => break came,
                // The interface went down (reported once), or nothing has arrived.
                Err(Errno::AGAIN | Errno::NETDOWN) => break 0,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.refused("recvmmsg", errno)),
            }
        };
        inbox.set_received(came);
        Ok(came)
    }

    /// Sends `count` datagrams until the kernel can take no more.
    pub fn send<'a>(
        &self,
        count: usize,
        datagram: impl Fn(usize) -> (Mac, &'a [u8]),
    ) -> Result<SendOutcome> {
        let mut sent = SendOutcome::default();
        while sent.done < count && !sent.full {
            let batch = (count - sent.done).min(mmsg::MAX_MESSAGES);
            let get = |at: usize| (at < batch).then(|| datagram(sent.done + at));
            let headers: [Option<Header>; mmsg::MAX_MESSAGES] = core::array::from_fn(|at| {
                get(at).map(|(to, bytes)| Header::new(to, self.mac, self.kind, bytes.len()))
            });
            let pieces: [IoSlice<'_>; mmsg::MAX_IOVECS] = core::array::from_fn(|at| {
                let bytes = match headers[at / 2].as_ref() {
                    Some(header) if at % 2 == 0 => &header.0[..],
                    _ => get(at / 2).map_or(&[][..], |(_, bytes)| bytes),
                };
                IoSlice::new(bytes)
            });
            let to = mmsg::Address::link(self.interface.index(), self.kind);
            let departure = mmsg::TxMessage {
                to: Some(to),
                pieces: 2,
                segment: None,
            };
            let departures = [departure; mmsg::MAX_MESSAGES];
            match mmsg::send(self.fd.as_fd(), &departures[..batch], &pieces) {
                Ok(went) => sent.done += went,
                Err(Errno::AGAIN) => sent.full = true,
                Err(Errno::INTR) => {}
                // Only this frame is rejected: too long, no room in the interface's queue, or the interface is down.
                Err(Errno::MSGSIZE | Errno::NOBUFS | Errno::NETDOWN | Errno::NOMEM) => {
                    sent.done += 1;
                    sent.lost += 1;
                }
                Err(errno) => return Err(self.refused("sendmmsg", errno)),
            }
        }
        Ok(sent)
    }
}

impl AsFd for EtherSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
