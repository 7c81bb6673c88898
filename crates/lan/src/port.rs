//! A LAN port: an existing interface, every frame of which comes to us and on which we send frames of any origin.
//! It promises whole frames with tags and headers, calls that do not wait, and counts of what was lost.
//! It refuses to take the interface away from the system, which sees its frames too.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::{Capability, Error, Result, errno};
use crate::frame::{Batch, Frame};
use crate::interface::{Interface, check_queues};
use crate::sys::{fanout, packet};
use crate::vnet::{VNET, Vnet};
use crate::{Put, Taken, Written};

/// Batches that a moment brings, at most.
const MOMENT: usize = 256;

/// What came to a port since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames, those without room included.
    pub frames: u64,
    /// Frames for which the socket had no room, because nobody read in time.
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
    /// Opens the interface with this name, in the thread's network namespace; `promiscuous`: for what is sent to others too.
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

    /// Opens the interface so many times, for so many threads: each frame comes to one of the ports, and all frames of a flow to
    /// the same one. What any of them sends comes to none.
    pub fn open_several(name: &str, promiscuous: bool, queues: usize) -> Result<Vec<Port>> {
        check_queues(queues)?;
        let first = Port::open(name, promiscuous)?;
        if queues == 1 {
            return Ok(vec![first]);
        }
        let group = fanout::found(&first.fd).map_err(|errno| first.unshared(errno))?;
        let mut ports = vec![first];
        while ports.len() < queues {
            // Until it joins, frames come to it that come to others, too.
            let port = Port::open(name, promiscuous)?;
            fanout::join(&port.fd, group).map_err(|errno| port.unshared(errno))?;
            port.forget()?;
            ports.push(port);
        }
        Ok(ports)
    }

    /// The kernel shares what comes only if it comes (until Linux 6.13).
    fn unshared(&self, errno: Errno) -> Error {
        let is_down = self.interface.link().is_ok_and(|link| !link.up);
        match errno {
            Errno::INVAL if is_down => Error::Down {
                name: self.interface.first_name().to_owned(),
            },
            errno => self.refused("PACKET_FANOUT", errno),
        }
    }

    /// Its settings and state.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    fn refused(&self, call: &'static str, errno: Errno) -> Error {
        let name = self.interface.first_name();
        Error::of(call, name, errno, Capability::NetRaw)
    }

    /// Whether what is sent to others comes too. Every yes needs its own no.
    pub fn set_promiscuous(&self, on: bool) -> Result<()> {
        let done = packet::set_promiscuous(&self.fd, self.interface.index(), on);
        done.map_err(|errno| self.refused("PACKET_MR_PROMISC", errno))
    }

    /// Asks for room for so many bytes that came and were not taken; the system may allow less.
    pub fn widen(&self, bytes: usize) {
        use rustix::net::sockopt;
        // Who may set limits aside may go beyond them. With less room more frames of a burst are lost, and counted.
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    /// What came, and what of it was lost.
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

    /// Throws away what came so far, as far as it is no more than a moment brings.
    fn forget(&self) -> Result<()> {
        let mut batch = Batch::new(8);
        for _ in 0..MOMENT {
            if self.read(&mut batch)? == Taken::default() {
                break;
            }
        }
        Ok(())
    }

    /// Fills the batch anew with frames that came, up to 64 of them.
    pub fn read(&self, batch: &mut Batch) -> Result<Taken> {
        let mut whole = [false; packet::MOST];
        let mut unknown = 0;
        let came = loop {
            match packet::receive(&self.fd, batch.refill(), &mut whole) {
                Ok(came) => break came,
                // Switched off (told once), or nothing there.
                Err(Errno::AGAIN | Errno::NETDOWN) => break 0,
                Err(Errno::INTR) => {}
                // A kind of super-frame that the kernel finds no header for: it is lost, the next may not be.
                Err(Errno::INVAL) if unknown < packet::MOST => unknown += 1,
                Err(errno) => return Err(self.refused("recvmmsg", errno)),
            }
        };
        batch.keep(|at| whole[at], came);
        let frames = batch.frames().len();
        Ok(Taken {
            frames,
            lost: came - frames + unknown,
        })
    }

    /// Sends frames, until the system can take no more now.
    pub fn write(&self, frames: &[Frame]) -> Result<Written> {
        let mut written = Written::default();
        while written.done < frames.len() {
            match packet::send(&self.fd, &frames[written.done..]) {
                Ok(went) => written.done += went,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) if is_about_one(errno) => {
                    written.done += 1;
                    written.refused += 1;
                }
                Err(errno) => return Err(self.refused("sendmmsg", errno)),
            }
        }
        Ok(written)
    }

    /// Sends one frame by a write of the caller's own, which is handed the descriptor and the header, and must write both header
    /// and frame at once. The system completes and cuts what the card cannot.
    pub fn put_by(
        &self,
        vnet: &Vnet,
        mut write: impl FnMut(BorrowedFd<'_>, &[u8; VNET]) -> std::io::Result<usize>,
    ) -> Result<Put> {
        let header = vnet.emit_native();
        loop {
            return match write(self.as_fd(), &header).map_err(|error| errno(&error)) {
                Ok(_) => Ok(Put::Sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Put::Wait),
                Err(errno) if is_about_one(errno) => Ok(Put::Refused),
                Err(errno) => Err(self.refused("writev", errno)),
            };
        }
    }

    /// Sends one frame, from wherever its bytes are. The system completes and cuts what the card cannot.
    pub fn put(&self, vnet: &Vnet, bytes: &[u8]) -> Result<Put> {
        loop {
            match packet::send_one(self.as_fd(), vnet, bytes) {
                Ok(()) => return Ok(Put::Sent),
                Err(Errno::AGAIN) => return Ok(Put::Wait),
                Err(Errno::INTR) => {}
                Err(errno) if is_about_one(errno) => return Ok(Put::Refused),
                Err(errno) => return Err(self.refused("sendmsg", errno)),
            }
        }
    }
}

/// Only this frame is refused: too long or wrong for its header, no room in the interface's queue, or the interface is down.
fn is_about_one(errno: Errno) -> bool {
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
