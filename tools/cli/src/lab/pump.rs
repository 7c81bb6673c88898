//! Moves frames between descriptors and a fabric: TAP interfaces and cables, which are local sockets with one frame in each packet. Reads
//! are bounded for each turn, and a descriptor that fails or blocks affects its own frames only.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use verbena_fabric::{Fabric, Frame, PortRef, Vnet};
use verbena_split::lan::{
    MAX_FRAME_LEN, Offloads, Queue, ReadOutcome, VNET_HDR_LEN, apply_offloads,
};

/// Frames that are read from one descriptor before the others have their turn.
const BURST: usize = 64;

/// Where the frames of a port come from and go to.
#[derive(Debug)]
pub enum Io {
    /// A TAP interface.
    Tap(Queue),
    /// A connected socket; with a virtio-net header before each frame, or without.
    Cable(OwnedFd, bool),
    /// Nothing: frames to it are dropped.
    Absent,
}

/// A port and its descriptor.
#[derive(Debug)]
pub struct Port {
    /// The port of the fabric.
    pub at: PortRef,
    /// Its descriptor.
    pub io: Io,
}

impl Port {
    /// The descriptor to wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.io {
            Io::Tap(queue) => Some(queue.as_fd()),
            Io::Cable(fd, _) => Some(fd.as_fd()),
            Io::Absent => None,
        }
    }
}

/// Ports, and whether frames must be complete.
#[derive(Debug)]
pub struct Pump {
    /// The ports.
    pub ports: Vec<Port>,
    /// Frames enter the fabric as on a wire: super-frames are segmented and checksums completed before.
    exact: bool,
    begin: Instant,
    room: Vec<u8>,
    pieces: Vec<u8>,
}

/// What became of a port's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It is as before.
    Open,
    /// The other side has closed it, or the interface was deleted.
    Closed,
}

impl Pump {
    /// A pump for these ports; time counts from now on.
    pub fn new(ports: Vec<Port>) -> Pump {
        Pump {
            ports,
            exact: false,
            begin: Instant::now(),
            room: vec![0; MAX_FRAME_LEN + 1],
            pieces: Vec::new(),
        }
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Sets whether frames must be complete, and tells the kernel, which then leaves nothing to offloads.
    pub fn set_exact(&mut self, exact: bool) {
        self.exact = exact;
        let wanted = if exact { Offloads::NONE } else { Offloads::ALL };
        for port in &self.ports {
            if let Io::Tap(queue) = &port.io {
                // What the kernel still leaves is done here.
                let _ = queue.set_offloads(wanted);
            }
        }
    }

    /// Reads what a port has into the fabric.
    pub fn serve(&mut self, index: usize, fabric: &mut Fabric) -> Served {
        for _ in 0..BURST {
            let Some(port) = self.ports.get(index) else {
                return Served::Open;
            };
            let read = match &port.io {
                Io::Tap(queue) => match queue.read_frame(&mut self.room) {
                    Ok(ReadOutcome::Frame(vnet, len)) => Some((vnet, 0, len)),
                    Ok(ReadOutcome::WouldBlock) => return Served::Open,
                    Ok(ReadOutcome::Lost) => None,
                    Err(_) => return Served::Closed,
                },
                Io::Cable(fd, header) => match read_cable(fd, *header, &mut self.room) {
                    Ok(read) => read,
                    Err(Errno::AGAIN | Errno::INTR) => return Served::Open,
                    Err(_) => return Served::Closed,
                },
                Io::Absent => return Served::Open,
            };
            if let Some((vnet, from, len)) = read {
                self.enter(index, vnet, from, len, fabric);
                self.deliver(fabric);
            }
        }
        Served::Open
    }

    fn enter(&mut self, index: usize, vnet: Vnet, from: usize, len: usize, fabric: &mut Fabric) {
        let (at, now) = (self.ports[index].at, self.begin.elapsed());
        let bytes = &self.room[from..from + len];
        // A claim about checksums that corruption would make false.
        let vnet = vnet.without_data_valid();
        let mut put = |vnet: &Vnet, bytes: &[u8]| {
            // The port is a host's: the fabric accepts every frame.
            let _ = fabric.inject(at, Frame::new(bytes.to_vec(), *vnet), now);
        };
        if self.exact && !vnet.is_plain() {
            // A frame that does not match its header is dropped.
            let _ = apply_offloads(&vnet, bytes, Offloads::NONE, &mut self.pieces, put);
        } else {
            put(&vnet, bytes);
        }
    }

    /// Writes what leaves the fabric.
    pub fn deliver(&mut self, fabric: &mut Fabric) {
        while let Some((at, frame)) = fabric.take_output() {
            let Some(port) = self.ports.iter().find(|port| port.at == at) else {
                continue;
            };
            // A full or absent receiver loses frames, as on any network.
            match &port.io {
                Io::Tap(queue) => {
                    let _ = queue.write_frame(&frame.vnet, &frame.bytes);
                }
                Io::Cable(fd, true) => {
                    let header = frame.vnet.emit();
                    let both = [IoSlice::new(&header), IoSlice::new(&frame.bytes)];
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let mut control = rustix::net::SendAncillaryBuffer::default();
                    let _ = rustix::net::sendmsg(fd, &both, &mut control, flags);
                }
                Io::Cable(fd, false) => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let complete = |_: &Vnet, bytes: &[u8]| {
                        let _ = rustix::net::send(fd, bytes, flags);
                    };
                    let (vnet, none) = (&frame.vnet, Offloads::NONE);
                    let _ = apply_offloads(vnet, &frame.bytes, none, &mut self.pieces, complete);
                }
                Io::Absent => {}
            }
        }
    }
}

/// Reads a packet of a cable; `None` if it is too short, too long or its header is not valid.
fn read_cable(
    fd: &OwnedFd,
    header: bool,
    room: &mut [u8],
) -> Result<Option<(Vnet, usize, usize)>, Errno> {
    let most = room.len();
    let mut control = rustix::net::RecvAncillaryBuffer::default();
    let mut pieces = [IoSliceMut::new(room)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(fd, &mut pieces, &mut control, flags)?.bytes;
    if got == 0 {
        // The end of a connection; an empty packet has no use either.
        return Err(Errno::PIPE);
    }
    if got >= most {
        return Ok(None);
    }
    if !header {
        return Ok(Some((Vnet::PLAIN, 0, got)));
    }
    let parsed = room[..got]
        .first_chunk::<VNET_HDR_LEN>()
        .and_then(|header| Vnet::parse(header).ok());
    Ok(parsed.map(|vnet| (vnet, VNET_HDR_LEN, got - VNET_HDR_LEN)))
}
