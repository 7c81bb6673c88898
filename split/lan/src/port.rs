//! A LAN port: a packet socket on an existing interface, which receives all frames of the interface and sends frames with any source.
//! Calls do not block, frames include VLAN tags and virtio-net headers, and losses are counted. The host's own network stack keeps
//! using the interface.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::{Capability, Error, Result, errno};
use crate::frame::{Batch, Frame};
use crate::interface::{Interface, check_queues};
use crate::sys::{fanout, packet};
use crate::vnet::{VNET_HDR_LEN, Vnet};
use crate::{BatchReadOutcome, BatchWriteOutcome, WriteOutcome};

/// Limit on the batches that [`Port::discard_received`] discards.
const MAX_DISCARDED: usize = 256;

/// Counters of a port since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames that arrived, dropped ones included.
    pub frames: u64,
    /// Frames that were dropped because the socket's receive buffer was full.
    pub drops: u64,
}

/// A LAN port.
#[derive(Debug)]
pub struct Port {
    interface: Interface,
    fd: OwnedFd,
    frames: AtomicU64,
    drops: AtomicU64,
}

impl Port {
    /// Opens the interface with this name, in the calling thread's network namespace; `promiscuous`: for frames to other stations too.
    pub fn open(name: &str, promiscuous: bool) -> Result<Port> {
        let interface = Interface::named(name)?;
        let refused = |call, errno| Error::of(call, name, errno, Capability::NetRaw);
        let fd = packet::open().map_err(|errno| refused("socket AF_PACKET", errno))?;
        packet::prepare(&fd).map_err(|(call, errno)| refused(call, errno))?;
        let bound = packet::bind(&fd, interface.index());
        bound.map_err(|errno| refused("bind AF_PACKET", errno))?;
        let port = Port {
            interface,
            fd,
            frames: AtomicU64::new(0),
            drops: AtomicU64::new(0),
        };
        if promiscuous {
            port.set_promiscuous(true)?;
        }
        Ok(port)
    }

    /// Opens the interface `queues` times, for as many threads: each frame arrives at one of the ports, and all frames of a flow at
    /// the same one. Frames sent by any of them arrive at none.
    pub fn open_several(name: &str, promiscuous: bool, queues: usize) -> Result<Vec<Port>> {
        check_queues(queues)?;
        let first = Port::open(name, promiscuous)?;
        if queues == 1 {
            return Ok(vec![first]);
        }
        let group = fanout::create(&first.fd).map_err(|errno| first.fanout_error(errno))?;
        let mut ports = vec![first];
        while ports.len() < queues {
            // Until it joins the group, it receives frames that other ports receive too.
            let port = Port::open(name, promiscuous)?;
            fanout::join(&port.fd, group).map_err(|errno| port.fanout_error(errno))?;
            port.discard_received()?;
            ports.push(port);
        }
        Ok(ports)
    }

    /// The error of `PACKET_FANOUT`, which before Linux 6.13 fails on an interface that is down.
    fn fanout_error(&self, errno: Errno) -> Error {
        let is_down = self.interface.link().is_ok_and(|link| !link.up);
        match errno {
            Errno::INVAL if is_down => Error::Down {
                name: self.interface.initial_name().to_owned(),
            },
            errno => self.refused("PACKET_FANOUT", errno),
        }
    }

    /// The interface.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    fn refused(&self, call: &'static str, errno: Errno) -> Error {
        let name = self.interface.initial_name();
        Error::of(call, name, errno, Capability::NetRaw)
    }

    /// Requests frames to other stations, or no longer. The kernel counts requests: each `true` needs its own `false`.
    pub fn set_promiscuous(&self, on: bool) -> Result<()> {
        let done = packet::set_promiscuous(&self.fd, self.interface.index(), on);
        done.map_err(|errno| self.refused("PACKET_MR_PROMISC", errno))
    }

    /// Requests a receive buffer of so many bytes; the kernel may grant less.
    pub fn set_receive_buffer(&self, bytes: usize) {
        use rustix::net::sockopt;
        // The forced variant exceeds `rmem_max` and needs CAP_NET_ADMIN. With a smaller buffer more of a burst is lost, and counted.
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    /// The counters.
    pub fn counters(&self) -> Result<Counters> {
        let new = packet::count(&self.fd);
        let new = new.map_err(|errno| self.refused("PACKET_STATISTICS", errno))?;
        let add = |to: &AtomicU64, new: u32| {
            let new = u64::from(new);
            to.fetch_add(new, Ordering::Relaxed) + new
        };
        Ok(Counters {
            frames: add(&self.frames, new.packets),
            drops: add(&self.drops, new.drops),
        })
    }

    /// Discards the frames that have arrived so far; the limit bounds it when frames arrive faster than they are read.
    fn discard_received(&self) -> Result<()> {
        let mut batch = Batch::new(8);
        for _ in 0..MAX_DISCARDED {
            if self.read(&mut batch)? == BatchReadOutcome::default() {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the batch's content by frames that have arrived, 64 at most.
    pub fn read(&self, batch: &mut Batch) -> Result<BatchReadOutcome> {
        let mut whole = [false; packet::MAX_FRAMES];
        let mut unknown = 0;
        let came = loop {
            match packet::receive(&self.fd, batch.refill(), &mut whole) {
                Ok(came) => break came,
                // The interface went down (reported once), or nothing has arrived.
                Err(Errno::AGAIN | Errno::NETDOWN) => break 0,
                Err(Errno::INTR) => {}
                // A kind of super-frame for which the kernel has no header: this frame is lost, the next may not be.
                Err(Errno::INVAL) if unknown < packet::MAX_FRAMES => unknown += 1,
                Err(errno) => return Err(self.refused("recvmmsg", errno)),
            }
        };
        batch.retain(|at| whole[at], came);
        let frames = batch.frames().len();
        Ok(BatchReadOutcome {
            frames,
            lost: came - frames + unknown,
        })
    }

    /// Sends frames until the kernel can take no more.
    pub fn write(&self, frames: &[Frame]) -> Result<BatchWriteOutcome> {
        let mut written = BatchWriteOutcome::default();
        while written.done < frames.len() {
            match packet::send(&self.fd, &frames[written.done..]) {
                Ok(went) => written.done += went,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) if is_frame_error(errno) => {
                    written.done += 1;
                    written.refused += 1;
                }
                Err(errno) => return Err(self.refused("sendmmsg", errno)),
            }
        }
        Ok(written)
    }

    /// Sends one frame through `write`, which is passed the descriptor and the header, and must write both header and frame in one
    /// call. The kernel completes and segments what the card cannot.
    pub fn write_frame_with(
        &self,
        vnet: &Vnet,
        mut write: impl FnMut(BorrowedFd<'_>, &[u8; VNET_HDR_LEN]) -> std::io::Result<usize>,
    ) -> Result<WriteOutcome> {
        let header = vnet.emit_native();
        loop {
            return match write(self.as_fd(), &header).map_err(|error| errno(&error)) {
                Ok(_) => Ok(WriteOutcome::Sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(WriteOutcome::WouldBlock),
                Err(errno) if is_frame_error(errno) => Ok(WriteOutcome::Refused),
                Err(errno) => Err(self.refused("writev", errno)),
            };
        }
    }

    /// Sends one frame. The kernel completes and segments what the card cannot.
    pub fn write_frame(&self, vnet: &Vnet, bytes: &[u8]) -> Result<WriteOutcome> {
        loop {
            match packet::send_one(self.as_fd(), vnet, bytes) {
                Ok(()) => return Ok(WriteOutcome::Sent),
                Err(Errno::AGAIN) => return Ok(WriteOutcome::WouldBlock),
                Err(Errno::INTR) => {}
                Err(errno) if is_frame_error(errno) => return Ok(WriteOutcome::Refused),
                Err(errno) => return Err(self.refused("sendmsg", errno)),
            }
        }
    }
}

/// Only this frame is rejected: too long, not matching its header, no room in the interface's queue, or the interface is down.
fn is_frame_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MSGSIZE | Errno::INVAL | Errno::NOBUFS | Errno::NETDOWN | Errno::NOMEM
    )
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
