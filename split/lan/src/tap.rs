//! A TAP interface: the kernel sees an ordinary interface, and this program reads the frames that it sends and writes the frames that
//! it receives, with virtio-net headers. Calls do not block. The interface is deleted when it is dropped, unless it was persistent.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, readv, writev};

use crate::error::{Capability, Error, Result, errno};
use crate::frame::{Batch, Frame};
use crate::interface::{Interface, check_name, check_queues};
use crate::offloads::Offloads;
use crate::sys::tun;
use crate::vnet::{VNET_HDR_LEN, Vnet};
use crate::{BatchReadOutcome, BatchWriteOutcome, ReadOutcome, WriteOutcome};

/// A TAP interface.
#[derive(Debug)]
pub struct Tap {
    interface: Interface,
    queues: Vec<Queue>,
}

/// A queue of a TAP interface; several threads may each use one.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    name: String,
}

impl Tap {
    /// Checks whether this is a valid name or pattern for an interface.
    pub fn check_name(name: &str) -> Result<()> {
        check_name(name, true)
    }

    /// Creates an interface with this name, or the next free one of a pattern such as `tap%d`, in the calling thread's network
    /// namespace. It is down, with a random address and an MTU of 1500.
    ///
    /// A persistent interface that an administrator made for this user (`ip tuntap add NAME mode tap user USER`, and `multi_queue` for
    /// several queues) is attached to; that needs no capability, and it stays when this one is dropped.
    ///
    /// With several queues, the kernel sends a flow's frames to the queue through which the flow's frames were last written.
    pub fn create(name: &str, queues: usize) -> Result<Tap> {
        Tap::check_name(name)?;
        check_queues(queues)?;
        let first = Queue::attach(name, queues > 1)?;
        let interface = Interface::named(&first.name)?;
        let mut all = vec![first];
        while all.len() < queues {
            all.push(Queue::attach(interface.initial_name(), true)?);
        }
        Ok(Tap {
            interface,
            queues: all,
        })
    }

    /// The interface.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Its queues.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Sets the carrier state: programs see that the link is up or down.
    pub fn set_carrier(&self, carrier: bool) -> Result<()> {
        self.set("TUNSETCARRIER", |fd| tun::set_carrier(fd, carrier))
    }

    /// Sets the offloads that the reader of this interface takes over; returns those that the kernel granted and may use.
    pub fn set_offloads(&self, wanted: Offloads) -> Result<Offloads> {
        let name = self.interface.initial_name();
        let fd = self.queues.first().map(AsFd::as_fd);
        set_offloads(fd, name, wanted)
    }

    /// Its queues, for passing their descriptors to another process.
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues
    }

    /// Offloads and carrier are properties of the interface; any queue's descriptor sets them.
    fn set(
        &self,
        call: &'static str,
        how: impl Fn(BorrowedFd<'_>) -> core::result::Result<(), Errno>,
    ) -> Result<()> {
        let name = self.interface.initial_name();
        let fd = self.queues.first().map(AsFd::as_fd);
        let done = fd.map_or(Err(Errno::BADFD), how);
        done.map_err(|errno| deleted_or(call, name, errno))
    }
}

fn set_offloads(fd: Option<BorrowedFd<'_>>, name: &str, wanted: Offloads) -> Result<Offloads> {
    let mut wanted = wanted.normalized();
    loop {
        let bits = bits(wanted);
        let done = fd.map_or(Err(Errno::BADFD), |fd| tun::set_offload(fd, bits));
        match done.map_err(|errno| deleted_or("TUNSETOFFLOAD", name, errno)) {
            Ok(()) => return Ok(wanted),
            // An older kernel: try without the most recent offload first.
            Err(Error::Refused {
                errno: Errno::INVAL,
                ..
            }) if wanted != Offloads::NONE => wanted = without_newest(wanted),
            Err(error) => return Err(error),
        }
    }
}

fn bits(offloads: Offloads) -> u32 {
    let each = [
        (offloads.checksum, libc::TUN_F_CSUM),
        (offloads.tcp4, libc::TUN_F_TSO4),
        (offloads.tcp6, libc::TUN_F_TSO6),
        (offloads.ecn, libc::TUN_F_TSO_ECN),
        // The kernel takes both or neither.
        (offloads.udp, libc::TUN_F_USO4 | libc::TUN_F_USO6),
    ];
    let set = each.into_iter().filter(|(on, _)| *on);
    set.fold(0, |all, (_, bit)| all | bit)
}

fn without_newest(offloads: Offloads) -> Offloads {
    if offloads.udp {
        Offloads {
            udp: false,
            ..offloads
        }
    } else {
        Offloads::NONE
    }
}

/// `EBADFD` is the error of a descriptor whose interface was deleted.
fn deleted_or(call: &'static str, name: &str, errno: Errno) -> Error {
    match errno {
        Errno::BADFD => Error::NoInterface {
            name: name.to_owned(),
        },
        errno => Error::of(call, name, errno, Capability::NetAdmin),
    }
}

impl Queue {
    fn attach(name: &str, several: bool) -> Result<Queue> {
        let fd = tun::open().map_err(|errno| Error::NoTun { errno })?;
        let refused = |errno| match errno {
            Errno::INVAL if several => Error::OneQueue {
                name: name.to_owned(),
            },
            Errno::INVAL => Error::ManyQueues {
                name: name.to_owned(),
            },
            Errno::BUSY | Errno::EXIST => Error::InUse {
                name: name.to_owned(),
            },
            errno => Error::of("TUNSETIFF", name, errno, Capability::NetAdmin),
        };
        let name = tun::attach(&fd, name, several).map_err(refused)?;
        let header = tun::set_header(&fd, VNET_HDR_LEN);
        header.map_err(|errno| deleted_or("TUNSETVNETHDRSZ", &name, errno))?;
        Ok(Queue { fd, name })
    }

    /// A queue from a descriptor that another process created with [`Tap::create`] and passed to this one. The name is for messages.
    pub fn from_fd(fd: OwnedFd, name: String) -> Queue {
        Queue { fd, name }
    }

    /// The name of the interface when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`Tap::set_carrier`].
    pub fn set_carrier(&self, carrier: bool) -> Result<()> {
        let done = tun::set_carrier(self.fd.as_fd(), carrier);
        done.map_err(|errno| deleted_or("TUNSETCARRIER", &self.name, errno))
    }

    /// As [`Tap::set_offloads`].
    pub fn set_offloads(&self, wanted: Offloads) -> Result<Offloads> {
        set_offloads(Some(self.fd.as_fd()), &self.name, wanted)
    }

    /// Reads one frame through `read`, which is passed the descriptor and the buffer for the header, and must read both header and
    /// frame in one call. `most` is the length of its buffer for the frame; a frame that fills it is lost.
    pub fn read_frame_with(
        &self,
        most: usize,
        read: impl FnMut(BorrowedFd<'_>, &mut [u8; VNET_HDR_LEN]) -> std::io::Result<usize>,
    ) -> Result<ReadOutcome> {
        match self.read_with(most, read) {
            Ok((vnet, len)) => Ok(ReadOutcome::Frame(vnet, len)),
            Err(Errno::AGAIN) => Ok(ReadOutcome::WouldBlock),
            Err(Errno::MSGSIZE | Errno::PROTO) => Ok(ReadOutcome::Lost),
            Err(errno) => Err(deleted_or("read", &self.name, errno)),
        }
    }

    /// Reads one frame that the kernel sends. The buffer must be longer than any frame ([`MAX_FRAME_LEN`](crate::MAX_FRAME_LEN) and one byte): a
    /// frame that fills it is lost, as it may have been truncated.
    pub fn read_frame(&self, room: &mut [u8]) -> Result<ReadOutcome> {
        self.read_frame_with(room.len(), |fd, header| {
            let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(room)];
            Ok(readv(fd, &mut pieces)?)
        })
    }

    fn read_one(&self, room: &mut [u8]) -> core::result::Result<(Vnet, usize), Errno> {
        self.read_with(room.len(), |fd, header| {
            let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(room)];
            Ok(readv(fd, &mut pieces)?)
        })
    }

    fn read_with(
        &self,
        most: usize,
        mut read: impl FnMut(BorrowedFd<'_>, &mut [u8; VNET_HDR_LEN]) -> std::io::Result<usize>,
    ) -> core::result::Result<(Vnet, usize), Errno> {
        let mut header = [0; VNET_HDR_LEN];
        let got = loop {
            match read(self.fd.as_fd(), &mut header).map_err(|error| errno(&error)) {
                Err(Errno::INTR) => {}
                // A kind of super-frame for which the kernel has no header.
                Err(Errno::INVAL) => return Err(Errno::PROTO),
                got => break got?,
            }
        };
        let len = got.checked_sub(VNET_HDR_LEN).ok_or(Errno::PROTO)?;
        if len >= most {
            return Err(Errno::MSGSIZE);
        }
        let vnet = Vnet::parse_native(&header).map_err(|_| Errno::PROTO)?;
        Ok((vnet, len))
    }

    /// Writes one frame, which the kernel receives on the interface.
    pub fn write_frame(&self, vnet: &Vnet, bytes: &[u8]) -> Result<WriteOutcome> {
        self.write_frame_with(vnet, |fd, header| {
            Ok(writev(fd, &[IoSlice::new(header), IoSlice::new(bytes)])?)
        })
    }

    /// Writes one frame through `write`, which is passed the descriptor and the header, and must write both header and frame in one
    /// call.
    pub fn write_frame_with(
        &self,
        vnet: &Vnet,
        mut write: impl FnMut(BorrowedFd<'_>, &[u8; VNET_HDR_LEN]) -> std::io::Result<usize>,
    ) -> Result<WriteOutcome> {
        let header = vnet.emit_native();
        loop {
            return match write(self.fd.as_fd(), &header).map_err(|error| errno(&error)) {
                Ok(_) => Ok(WriteOutcome::Sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(WriteOutcome::WouldBlock),
                Err(errno @ (Errno::BADFD | Errno::PERM)) => {
                    Err(deleted_or("write", &self.name, errno))
                }
                // Interface down, no memory, or a frame that does not match its header: only this frame is lost.
                Err(_) => Ok(WriteOutcome::Refused),
            };
        }
    }

    /// Replaces the batch's content by frames that the kernel sends.
    pub fn read(&self, batch: &mut Batch) -> Result<BatchReadOutcome> {
        let (mut frames, mut lost) = (0, 0);
        let rooms = batch.refill();
        // Lost frames count too: otherwise a sender of nothing else would keep this loop running.
        while frames + lost < rooms.len() {
            let room = &mut rooms[frames];
            match self.read_one(room.tap_buffer()) {
                Ok((vnet, len)) if room.set_received(vnet, len) => frames += 1,
                Ok(_) | Err(Errno::MSGSIZE | Errno::PROTO) => lost += 1,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(deleted_or("read", &self.name, errno)),
            }
        }
        batch.retain(|_| true, frames);
        Ok(BatchReadOutcome { frames, lost })
    }

    /// Writes frames until the kernel can take no more.
    pub fn write(&self, frames: &[Frame]) -> Result<BatchWriteOutcome> {
        let mut written = BatchWriteOutcome::default();
        for frame in frames {
            match self.write_frame(frame.vnet(), frame.bytes())? {
                WriteOutcome::Sent => {}
                WriteOutcome::WouldBlock => break,
                WriteOutcome::Refused => written.refused += 1,
            }
            written.done += 1;
        }
        Ok(written)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
