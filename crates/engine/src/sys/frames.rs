//! What carries the Ethernet frames of a port: a TAP interface, or a cable, which is a local socket with one frame in each packet.
//! No call blocks. A frame that finds no room on a cable is given back; one that a TAP refuses is lost, as on any network.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType,
};
use verbena_lan::{MAX_FRAME_LEN, Offloads, Queue, ReadOutcome, Tap, Vnet, WriteOutcome};

use super::fd::{FLAGS, Fd};
use super::{Error, Result};

/// Room for a frame. A longer one is lost.
pub const FRAME_ROOM: usize = MAX_FRAME_LEN + 1;

/// A device with frames.
#[derive(Debug)]
pub struct FrameDevice(Kind);

#[derive(Debug)]
enum Kind {
    Tap(Queue),
    Cable(Fd),
}

/// A frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameRead {
    /// So many bytes; `verified`: its checksums are good, or need not be verified.
    Frame {
        /// Its length.
        len: usize,
        /// Its checksums were verified, or never left the host.
        verified: bool,
    },
    /// A frame that was lost: it was too long, or its header made no sense.
    Lost,
    /// None has arrived.
    None,
    /// None will arrive: the interface was deleted, or the switch has ended.
    Gone,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSent {
    /// It was sent, or lost.
    Done,
    /// There is no room now.
    Full,
}

impl FrameDevice {
    /// Creates the TAP interface with this name, or attaches to the one that an administrator made for this user; returns its Ethernet address,
    /// too. Unless frames are to be `complete`, they come with work left to offloads.
    pub fn tap(
        name: &str,
        complete: bool,
    ) -> core::result::Result<(FrameDevice, [u8; 6]), verbena_lan::Error> {
        let tap = Tap::create(name, 1)?;
        // What the kernel leaves undone is accepted: its frames never left the host.
        let _ = tap.set_offloads(Offloads {
            udp: false,
            ..if complete {
                Offloads::NONE
            } else {
                Offloads::ALL
            }
        });
        let mac = tap.interface().mac()?.octets();
        let queue = tap.into_queues().into_iter().next();
        let none = || verbena_lan::Error::NoTun {
            errno: Errno::BADFD,
        };
        Ok((FrameDevice(Kind::Tap(queue.ok_or_else(none)?)), mac))
    }

    /// Connects to the socket for cables of a switch.
    pub fn cable(path: &Path) -> Result<FrameDevice> {
        let address = SocketAddrUnix::new(path).map_err(Error::of("connect"))?;
        let fd = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None);
        let fd = Fd::from(fd.map_err(Error::of("socket"))?);
        retry_on_intr(|| net::connect(&fd, &address)).map_err(Error::of("connect"))?;
        // The system limits it to what it allows.
        let _ = net::sockopt::set_socket_send_buffer_size(&fd, 1 << 20);
        Ok(FrameDevice(Kind::Cable(fd)))
    }

    /// Reads one frame. `room` has [`FRAME_ROOM`] bytes.
    pub fn read(&self, room: &mut [u8]) -> FrameRead {
        match &self.0 {
            Kind::Tap(queue) => match queue.read_frame(room) {
                Ok(ReadOutcome::Frame(vnet, len)) => FrameRead::Frame {
                    len,
                    verified: vnet.data_valid || vnet.partial.is_some(),
                },
                Ok(ReadOutcome::WouldBlock) => FrameRead::None,
                Ok(ReadOutcome::Lost) => FrameRead::Lost,
                Err(_) => FrameRead::Gone,
            },
            Kind::Cable(fd) => {
                let flags = net::RecvFlags::DONTWAIT | net::RecvFlags::TRUNC;
                match retry_on_intr(|| net::recv(fd, &mut *room, flags)) {
                    // An empty packet has no use, and the end of the connection reads the same.
                    Ok((_, 0)) => FrameRead::Gone,
                    Ok((_, len)) if len >= room.len() => FrameRead::Lost,
                    Ok((_, len)) => FrameRead::Frame {
                        len,
                        verified: false,
                    },
                    Err(Errno::AGAIN) => FrameRead::None,
                    Err(_) => FrameRead::Gone,
                }
            }
        }
    }

    /// Sends a frame in two parts.
    pub fn send(&self, head: &[u8], body: &[u8]) -> FrameSent {
        match &self.0 {
            Kind::Tap(queue) => {
                let sent = queue.write_frame_with(&Vnet::PLAIN, |fd, vnet| {
                    let parts = [IoSlice::new(vnet), IoSlice::new(head), IoSlice::new(body)];
                    Ok(rustix::io::writev(fd, &parts)?)
                });
                match sent {
                    Ok(WriteOutcome::WouldBlock) => FrameSent::Full,
                    _ => FrameSent::Done,
                }
            }
            Kind::Cable(fd) => {
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let mut none = SendAncillaryBuffer::default();
                match retry_on_intr(|| net::sendmsg(fd, &parts, &mut none, flags)) {
                    Err(Errno::AGAIN | Errno::NOBUFS) => FrameSent::Full,
                    _ => FrameSent::Done,
                }
            }
        }
    }
}

impl AsFd for FrameDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Tap(queue) => queue.as_fd(),
            Kind::Cable(fd) => fd.as_fd(),
        }
    }
}
