//! A simulated UDP socket. No call blocks; datagrams arrive at once, in order, unless the receiver has no room.
//! Multicast is not simulated, and a port belongs to one socket.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::receive_batch::{Message, ReceiveBatch};
use super::segments::SegmentsOutcome;
use super::simulated::{Descriptor, point, wake, with};
use super::{Error, Result};

/// A datagram socket.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: Descriptor,
}

impl DatagramSocket {
    /// Binds to `at` exclusively.
    pub fn bind(at: SocketAddr) -> Result<DatagramSocket> {
        point();
        let id = with(|world| world.bind_datagram(at)).map_err(Error::of("bind"))?;
        let fd = Descriptor::of(id)?;
        Ok(DatagramSocket { fd })
    }

    /// The same: groups that share a port are not simulated.
    pub fn bind_roce(at: SocketAddr) -> Result<DatagramSocket> {
        DatagramSocket::bind(at)
    }

    /// Without effect: there is one member.
    pub fn steer_by_qpn(&self) -> Result<()> {
        Ok(())
    }

    /// Multicast is not simulated.
    pub fn bind_group(_: IpAddr, _: u16, _: &[IpAddr]) -> Result<DatagramSocket> {
        Err(Error::new("setsockopt IP_ADD_MEMBERSHIP", Errno::OPNOTSUPP))
    }

    /// Multicast is not simulated.
    pub fn set_multicast_interface(&self, _: IpAddr) -> Result<()> {
        Err(Error::new("setsockopt IP_MULTICAST_IF", Errno::OPNOTSUPP))
    }

    /// Without effect: the size is fixed.
    pub fn set_recv_buffer(&self, _: usize) {}

    /// Sends a datagram.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<bool> {
        point();
        with(|world| world.send_datagram(self.fd.raw(), bytes, to));
        wake();
        Ok(true)
    }

    /// Receives a datagram: its true length, which may exceed the buffer, and its source; none if there is none.
    pub fn receive(&self, room: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
        point();
        let taken = with(|world| world.take_datagram(self.fd.raw()));
        Ok(taken.map(|(bytes, from)| {
            let copied = bytes.len().min(room.len());
            room[..copied].copy_from_slice(&bytes[..copied]);
            (bytes.len(), from)
        }))
    }

    /// Sends the bytes as datagrams of `segment` bytes, the last of which may be shorter.
    pub fn send_segments(
        &self,
        bytes: &[u8],
        segment: usize,
        to: SocketAddr,
    ) -> Result<SegmentsOutcome> {
        for datagram in bytes.chunks(segment.max(1)) {
            self.send(datagram, to)?;
        }
        Ok(SegmentsOutcome::Sent)
    }

    /// Replaces what is in the buffers by the datagrams that have arrived; false if there are none.
    pub fn receive_batch(&self, batch: &mut ReceiveBatch) -> Result<bool> {
        point();
        let mut received = 0;
        for (buffer, message) in batch.slots() {
            let Some((bytes, from)) = with(|world| world.take_datagram(self.fd.raw())) else {
                break;
            };
            let copied = bytes.len().min(buffer.len());
            buffer[..copied].copy_from_slice(&bytes[..copied]);
            *message = Message {
                len: bytes.len(),
                segment: None,
                from: Some(from),
            };
            received += 1;
        }
        batch.set_received(received);
        Ok(received > 0)
    }

    /// Its local address.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        with(|world| world.datagram_addr(self.fd.raw()))
            .ok_or(Error::new("getsockname", Errno::BADF))
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
