//! Datagrams in Ethernet frames of one EtherType on one interface, through a non-blocking packet socket. Two bytes behind the type
//! hold the length of the datagram, so that padding is removed. Only untagged unicast frames to this station are delivered, and a
//! datagram that is too long for the interface's MTU is counted as lost.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::datagrams::SendOutcome;
use crate::error::{Capability, Error, Result};
use crate::inbox::Inbox;
use crate::interface::Interface;
use crate::mac::Mac;
use crate::sys::{mmsg, packet};

/// Destination, source and type.
const ETH_HLEN: usize = 14;
/// The length field behind the type.
const LENGTH_FIELD: usize = 2;

/// The headers of a datagram.
pub(crate) struct Header([u8; ETH_HLEN + LENGTH_FIELD]);

impl Header {
    fn new(to: Mac, from: Mac, kind: u16, len: usize) -> Header {
        let mut bytes = [0; ETH_HLEN + LENGTH_FIELD];
        bytes[..6].copy_from_slice(&to.octets());
        bytes[6..12].copy_from_slice(&from.octets());
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        // A datagram beyond 64 KiB exceeds every MTU, and the kernel rejects its frame.
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        bytes[14..].copy_from_slice(&len.to_be_bytes());
        Header(bytes)
    }

    /// The sender of a frame and its datagram; `None` if the frame is shorter than its length field says.
    pub(crate) fn parse(frame: &[u8]) -> Option<(Mac, &[u8])> {
        let from = Mac::read_at(frame, 6)?;
        let (len, rest) = frame.get(ETH_HLEN..)?.split_first_chunk::<LENGTH_FIELD>()?;
        let len = usize::from(u16::from_be_bytes(*len));
        Some((from, rest.get(..len)?))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_part_of_a_datagram() {
        let (to, from) = (Mac::local(1), Mac::local(2));
        let mut frame = Header::new(to, from, 0x88b5, 3).0.to_vec();
        frame.extend_from_slice(b"abc");
        // A driver's padding need not be zero.
        frame.resize(60, 7);
        assert_eq!(Header::parse(&frame), Some((from, &b"abc"[..])));
        assert_eq!(Header::parse(&frame[..18]), None, "shorter than it says");
        for len in 0..16 {
            assert_eq!(Header::parse(&frame[..len]), None);
        }
    }
}
