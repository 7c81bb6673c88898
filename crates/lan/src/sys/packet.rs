//! Packet sockets: frames of one interface in and out, many per call.
//! It promises that the kernel writes only into rooms that are lent for the call, and that a tag which the card or the kernel
//! took out of a frame comes back beside it. It refuses to decide which refusals matter.
//!
//! A mapped ring would save a fifth of what a frame of 1500 bytes costs on its way through a veth (1.35 for 1.7 µs), and a
//! tenth at 9000; for that, it hands frames over by blocks, late, or needs a slot of the longest frame's size for each.

use core::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::answer;
use crate::frame::Frame;
use crate::headers::TAG;
use crate::vnet::{VNET, Vnet};

/// Frames per call.
pub(crate) const MOST: usize = 64;

// Those of `linux/if_packet.h` that the C library's Rust face does not have on every target.
const AUXDATA: libc::c_int = 8;
const VNET_HDR: libc::c_int = 15;
const IGNORE_OUTGOING: libc::c_int = 23;
const STATISTICS: libc::c_int = 6;
const ADD_MEMBERSHIP: libc::c_int = 1;
const DROP_MEMBERSHIP: libc::c_int = 2;
const MR_PROMISC: libc::c_ushort = 1;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
/// The tag's type if the kernel does not tell it.
const VLAN: u16 = 0x8100;

/// What comes beside a frame (`struct tpacket_auxdata`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Beside {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

#[repr(C)]
struct Membership {
    interface: libc::c_int,
    kind: libc::c_ushort,
    len: libc::c_ushort,
    address: [u8; 8],
}

/// Frames that came to the socket, and those of them for which there was no room; counted anew with every question.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) packets: u32,
    pub(crate) drops: u32,
}

/// A socket that receives nothing yet.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
}

pub(super) fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    let value = core::ptr::from_ref(value).cast();
    // SAFETY: reads so many bytes of the value, which is borrowed until the call returns.
    answer(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value, len) })
        .map(drop)
}

/// Frames come and go with their header, tags come beside them, and what others send here is not received.
pub(crate) fn prepare(fd: &OwnedFd) -> Result<(), (&'static str, Errno)> {
    let on: libc::c_int = 1;
    for (option, name) in [
        (VNET_HDR, "PACKET_VNET_HDR"),
        (AUXDATA, "PACKET_AUXDATA"),
        (IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"),
    ] {
        set(fd, option, &on).map_err(|errno| (name, errno))?;
    }
    Ok(())
}

/// From now on it receives everything of this interface.
pub(crate) fn bind(fd: &OwnedFd, interface: u32) -> Result<(), Errno> {
    // SAFETY: a plain C structure, for which zeros are a value.
    let mut at: libc::sockaddr_ll = unsafe { mem::zeroed() };
    at.sll_family = libc::AF_PACKET as u16;
    at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    at.sll_ifindex = interface as libc::c_int;
    let len = mem::size_of_val(&at) as libc::socklen_t;
    // SAFETY: reads so many bytes of the address, which is ours until the call returns.
    answer(unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), len) }).map(drop)
}

/// The interface takes what is for others too, or no longer; it forgets that with the socket.
pub(crate) fn set_promiscuous(fd: &OwnedFd, interface: u32, on: bool) -> Result<(), Errno> {
    let membership = Membership {
        interface: interface as libc::c_int,
        kind: MR_PROMISC,
        len: 0,
        address: [0; 8],
    };
    let option = if on { ADD_MEMBERSHIP } else { DROP_MEMBERSHIP };
    set(fd, option, &membership)
}

/// What came since the last question.
pub(crate) fn count(fd: &OwnedFd) -> Result<Count, Errno> {
    let mut count = Count::default();
    let mut len = mem::size_of_val(&count) as libc::socklen_t;
    let (to, len) = ((&raw mut count).cast(), &raw mut len);
    // SAFETY: writes at most so many bytes, which are ours until the call returns.
    answer(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, STATISTICS, to, len) })?;
    Ok(count)
}

/// Room for what comes beside a frame, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

const NOWHERE: libc::iovec = libc::iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
};

fn piece(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

fn messages() -> [libc::mmsghdr; MOST] {
    // SAFETY: plain C structures, for which zeros are a value.
    unsafe { mem::zeroed() }
}

/// Takes frames; how many came, and of each whether it is whole and known (the others' rooms hold nothing).
pub(crate) fn receive(
    fd: &OwnedFd,
    frames: &mut [Frame],
    whole: &mut [bool; MOST],
) -> Result<usize, Errno> {
    let count = frames.len().min(MOST);
    let mut messages = messages();
    let mut pieces = [[NOWHERE; 3]; MOST];
    let mut headers = [[0u8; VNET]; MOST];
    let mut controls = [Control([0; 64]); MOST];
    for (at, frame) in frames.iter_mut().take(count).enumerate() {
        let (addresses, rest) = frame.parted();
        pieces[at] = [piece(&mut headers[at]), piece(addresses), piece(rest)];
        let message = &mut messages[at].msg_hdr;
        message.msg_iov = pieces[at].as_mut_ptr();
        message.msg_iovlen = 3;
        message.msg_control = controls[at].0.as_mut_ptr().cast();
        message.msg_controllen = 64;
    }
    let (room, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
    let wait = core::ptr::null_mut();
    // SAFETY: every message names rooms of its own frame, its header and its control, all of which are borrowed or owned here
    // and outlive the call; `count` of the messages are filled in.
    let came = unsafe { libc::recvmmsg(fd.as_raw_fd(), room, count as _, flags as _, wait) };
    let came = answer(came)? as usize;
    for at in 0..came.min(count) {
        let message = &messages[at];
        let len = (message.msg_len as usize).checked_sub(VNET);
        let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let vnet = Vnet::parse_native(&headers[at]).ok();
        whole[at] = match (len, vnet) {
            (Some(len), Some(vnet)) if !truncated => {
                let tag = tag(&message.msg_hdr);
                frames[at].came_parted(vnet, len, tag)
            }
            _ => false,
        };
    }
    Ok(came)
}

/// The tag that was taken out of this frame.
fn tag(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the message was filled in by the kernel, and its control is still there.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: within the control, as the two calls that name it make sure.
        let head = unsafe { next.read_unaligned() };
        // SAFETY: only its length counts.
        let needed = unsafe { libc::CMSG_LEN(mem::size_of::<Beside>() as u32) } as usize;
        let is = head.cmsg_level == libc::SOL_PACKET && head.cmsg_type == AUXDATA;
        if is && head.cmsg_len as usize >= needed {
            // SAFETY: behind the head, and as long as was just checked.
            let beside: Beside = unsafe { libc::CMSG_DATA(next).cast::<Beside>().read_unaligned() };
            return beside.tag();
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

impl Beside {
    fn tag(&self) -> Option<[u8; TAG]> {
        let known = self.status & VLAN_TPID_VALID != 0;
        let kind = if known { self.vlan_tpid } else { VLAN };
        let ([a, b], [c, d]) = (kind.to_be_bytes(), self.vlan_tci.to_be_bytes());
        (self.status & VLAN_VALID != 0).then_some([a, b, c, d])
    }
}

/// Sends frames, up to [`MOST`]; how many went before one was refused. If that is the first, why.
pub(crate) fn send(fd: &OwnedFd, frames: &[Frame]) -> Result<usize, Errno> {
    let count = frames.len().min(MOST);
    let mut messages = messages();
    let mut pieces = [[NOWHERE; 2]; MOST];
    let mut headers = [[0u8; VNET]; MOST];
    for (at, frame) in frames.iter().take(count).enumerate() {
        headers[at] = frame.vnet().emit_native();
        let bytes = libc::iovec {
            // The kernel only reads it.
            iov_base: frame.bytes().as_ptr().cast_mut().cast(),
            iov_len: frame.bytes().len(),
        };
        pieces[at] = [piece(&mut headers[at]), bytes];
        let message = &mut messages[at].msg_hdr;
        message.msg_iov = pieces[at].as_mut_ptr();
        message.msg_iovlen = 2;
    }
    let (room, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
    // SAFETY: every message names its header and its frame's bytes, which are owned or borrowed here and outlive the call;
    // `count` of the messages are filled in, and the kernel writes only their lengths.
    let went = unsafe { libc::sendmmsg(fd.as_raw_fd(), room, count as _, flags as _) };
    Ok(answer(went)? as usize)
}

/// Sends one frame from wherever its bytes are.
pub(crate) fn send_one(fd: BorrowedFd<'_>, vnet: &Vnet, bytes: &[u8]) -> Result<(), Errno> {
    let mut header = vnet.emit_native();
    let bytes = libc::iovec {
        // The kernel only reads it.
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut pieces = [piece(&mut header), bytes];
    // SAFETY: a plain C structure, for which zeros are a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = 2;
    let message = &raw const message;
    // SAFETY: names the header and the bytes, which are owned or borrowed here and outlive the call.
    let went = unsafe { libc::sendmsg(fd.as_raw_fd(), message, libc::MSG_DONTWAIT) };
    if went < 0 { Err(super::last()) } else { Ok(()) }
}
