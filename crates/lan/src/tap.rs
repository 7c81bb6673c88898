//! A TAP interface: the kernel's end is an interface like any other, ours hands over and takes its frames.
//! It promises whole frames with their headers, calls that do not wait, and an interface that goes when it is dropped.
//! It refuses to know where the frames go.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, readv, writev};

use crate::error::{Capability, Error, Result, errno};
use crate::frame::{Batch, Frame};
use crate::interface::{Interface, check, check_queues};
use crate::offloads::Offloads;
use crate::sys::tun;
use crate::vnet::{VNET, Vnet};
use crate::{Put, Taken, Took, Written};

/// A TAP interface of ours.
#[derive(Debug)]
pub struct Tap {
    interface: Interface,
    queues: Vec<Queue>,
}

/// One way in and out of a TAP interface; several threads may each have their own.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    name: String,
}

impl Tap {
    /// Whether an interface can have this name, or one of this pattern.
    pub fn check_name(name: &str) -> Result<()> {
        check(name, true)
    }

    /// Creates an interface with this name, or the next free one of a pattern such as `tap%d`, in the thread's network
    /// namespace. Its owner may do nothing yet: it is down, with a random address and an MTU of 1500.
    ///
    /// An interface that an administrator made for this user (`ip tuntap add NAME mode tap user USER`, and `multi_queue` for
    /// several queues) is taken over; it needs no capability, and stays when this one is dropped.
    ///
    /// What the system sends of a flow comes to one of several queues: to that by which the flow's frames came last.
    pub fn create(name: &str, queues: usize) -> Result<Tap> {
        Tap::check_name(name)?;
        check_queues(queues)?;
        let first = Queue::attach(name, queues > 1)?;
        let interface = Interface::named(&first.name)?;
        let mut all = vec![first];
        while all.len() < queues {
            all.push(Queue::attach(interface.first_name(), true)?);
        }
        Ok(Tap {
            interface,
            queues: all,
        })
    }

    /// Its settings and state.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Its queues.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Plugs the cable in, or pulls it: programs see that the link is up or down.
    pub fn set_carrier(&self, carrier: bool) -> Result<()> {
        self.set("TUNSETCARRIER", |fd| tun::set_carrier(fd, carrier))
    }

    /// Says what the reader of this interface takes over; what of it the kernel granted, and so may hand over.
    pub fn set_offloads(&self, wanted: Offloads) -> Result<Offloads> {
        let mut wanted = wanted.sound();
        loop {
            let bits = bits(wanted);
            match self.set("TUNSETOFFLOAD", |fd| tun::set_offload(fd, bits)) {
                Ok(()) => return Ok(wanted),
                // An older kernel: first without what came last.
                Err(Error::Refused {
                    errno: Errno::INVAL,
                    ..
                }) if wanted != Offloads::NONE => wanted = lesser(wanted),
                Err(error) => return Err(error),
            }
        }
    }

    /// Offloads and carrier are of the interface; any queue leads to it.
    fn set(
        &self,
        call: &'static str,
        how: impl Fn(BorrowedFd<'_>) -> core::result::Result<(), Errno>,
    ) -> Result<()> {
        let name = self.interface.first_name();
        let fd = self.queues.first().map(AsFd::as_fd);
        let done = fd.map_or(Err(Errno::BADFD), how);
        done.map_err(|errno| gone_or(call, name, errno))
    }
}

fn bits(offloads: Offloads) -> u32 {
    let each = [
        (offloads.checksum, libc::TUN_F_CSUM),
        (offloads.tcp4, libc::TUN_F_TSO4),
        (offloads.tcp6, libc::TUN_F_TSO6),
        (offloads.ecn, libc::TUN_F_TSO_ECN),
        // The kernel has them together or not at all.
        (offloads.udp, libc::TUN_F_USO4 | libc::TUN_F_USO6),
    ];
    let set = each.into_iter().filter(|(on, _)| *on);
    set.fold(0, |all, (_, bit)| all | bit)
}

fn lesser(offloads: Offloads) -> Offloads {
    if offloads.udp {
        Offloads {
            udp: false,
            ..offloads
        }
    } else {
        Offloads::NONE
    }
}

/// A descriptor whose interface was deleted is in a bad state.
fn gone_or(call: &'static str, name: &str, errno: Errno) -> Error {
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
        let header = tun::set_header(&fd, VNET);
        header.map_err(|errno| gone_or("TUNSETVNETHDRSZ", &name, errno))?;
        Ok(Queue { fd, name })
    }

    /// Takes one frame by a read of the caller's own, which is handed the descriptor and the room for the header, and must read
    /// both header and frame at once. `most` is the room that it has for a frame; one that fills it is lost.
    pub fn take_by(
        &self,
        most: usize,
        read: impl FnMut(BorrowedFd<'_>, &mut [u8; VNET]) -> std::io::Result<usize>,
    ) -> Result<Took> {
        match self.read_by(most, read) {
            Ok((vnet, len)) => Ok(Took::Frame(vnet, len)),
            Err(Errno::AGAIN) => Ok(Took::Nothing),
            Err(Errno::MSGSIZE | Errno::PROTO) => Ok(Took::Lost),
            Err(errno) => Err(gone_or("read", &self.name, errno)),
        }
    }

    /// Takes one frame that the system sends, into any room. That must be longer than any frame ([`LONGEST`](crate::LONGEST)
    /// and a byte): one that fills it is lost, as it may have been longer.
    pub fn take(&self, room: &mut [u8]) -> Result<Took> {
        self.take_by(room.len(), |fd, header| {
            let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(room)];
            Ok(readv(fd, &mut pieces)?)
        })
    }

    fn read_one(&self, room: &mut [u8]) -> core::result::Result<(Vnet, usize), Errno> {
        self.read_by(room.len(), |fd, header| {
            let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(room)];
            Ok(readv(fd, &mut pieces)?)
        })
    }

    fn read_by(
        &self,
        most: usize,
        mut read: impl FnMut(BorrowedFd<'_>, &mut [u8; VNET]) -> std::io::Result<usize>,
    ) -> core::result::Result<(Vnet, usize), Errno> {
        let mut header = [0; VNET];
        let got = loop {
            match read(self.fd.as_fd(), &mut header).map_err(|error| errno(&error)) {
                Err(Errno::INTR) => {}
                // A kind of super-frame that the kernel finds no header for.
                Err(Errno::INVAL) => return Err(Errno::PROTO),
                got => break got?,
            }
        };
        let len = got.checked_sub(VNET).ok_or(Errno::PROTO)?;
        if len >= most {
            return Err(Errno::MSGSIZE);
        }
        let vnet = Vnet::parse_native(&header).map_err(|_| Errno::PROTO)?;
        Ok((vnet, len))
    }

    /// Hands one frame to the system, from wherever its bytes are.
    pub fn put(&self, vnet: &Vnet, bytes: &[u8]) -> Result<Put> {
        self.put_by(vnet, |fd, header| {
            Ok(writev(fd, &[IoSlice::new(header), IoSlice::new(bytes)])?)
        })
    }

    /// Hands one frame to the system by a write of the caller's own, which is handed the descriptor and the header, and must
    /// write both header and frame at once.
    pub fn put_by(
        &self,
        vnet: &Vnet,
        mut write: impl FnMut(BorrowedFd<'_>, &[u8; VNET]) -> std::io::Result<usize>,
    ) -> Result<Put> {
        let header = vnet.emit_native();
        loop {
            return match write(self.fd.as_fd(), &header).map_err(|error| errno(&error)) {
                Ok(_) => Ok(Put::Sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Put::Wait),
                Err(errno @ (Errno::BADFD | Errno::PERM)) => {
                    Err(gone_or("write", &self.name, errno))
                }
                // Down, without room, or a frame that does not fit its header: this one is lost and nothing else.
                Err(_) => Ok(Put::Refused),
            };
        }
    }

    /// Fills the batch anew with frames that the system sends.
    pub fn read(&self, batch: &mut Batch) -> Result<Taken> {
        let (mut frames, mut lost) = (0, 0);
        let rooms = batch.refill();
        // A frame that is lost has its turn too, or a sender of nothing else would keep us here.
        while frames + lost < rooms.len() {
            let room = &mut rooms[frames];
            match self.read_one(room.whole()) {
                Ok((vnet, len)) if room.came(vnet, len) => frames += 1,
                Ok(_) | Err(Errno::MSGSIZE | Errno::PROTO) => lost += 1,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(gone_or("read", &self.name, errno)),
            }
        }
        batch.keep(|_| true, frames);
        Ok(Taken { frames, lost })
    }

    /// Hands frames to the system, until it can take no more now.
    pub fn write(&self, frames: &[Frame]) -> Result<Written> {
        let mut written = Written::default();
        for frame in frames {
            match self.put(frame.vnet(), frame.bytes())? {
                Put::Sent => {}
                Put::Wait => break,
                Put::Refused => written.refused += 1,
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
