//! `recvmmsg` and `sendmmsg`: many messages per call with their addresses, several datagrams of one length as one message (GSO, GRO).
//! The kernel accesses only buffers that are borrowed for the call. Errors are returned as they are.

use core::mem;
use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::check_result;

/// Limit on messages per call.
pub(crate) const MAX_MESSAGES: usize = 64;
/// Limit on pieces of all messages of a call.
pub(crate) const MAX_IOVECS: usize = 2 * MAX_MESSAGES;

/// A socket address of any family that is used here.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    bytes: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Address {
    fn blank() -> Address {
        Address {
            // SAFETY: `sockaddr_storage` is a C structure of integers, for which zeros are valid.
            bytes: unsafe { mem::zeroed() },
            len: 0,
        }
    }

    fn of<T: Copy>(value: T) -> Address {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        let mut address = Address::blank();
        // SAFETY: the local `address.bytes` is large and aligned enough for a `T`, as asserted above, and exclusively borrowed.
        unsafe { (&raw mut address.bytes).cast::<T>().write(value) };
        address.len = size_of::<T>() as libc::socklen_t;
        address
    }

    /// Its bytes as a C address structure.
    fn view<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        // SAFETY: `self.bytes` is large and aligned enough for a `T`, as asserted above. `T` is one of the `sockaddr` structures of integers,
        // for which any bytes are valid, and the storage was zeroed by `blank` before anything else was written to it.
        unsafe { (&raw const self.bytes).cast::<T>().read() }
    }

    pub(crate) fn ip(address: SocketAddr) -> Address {
        match address {
            SocketAddr::V4(v4) => Address::of(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Address::of(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    /// An interface, for a packet socket that sends whole frames.
    pub(crate) fn link(interface: u32, protocol: u16) -> Address {
        Address::of(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: interface as libc::c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        })
    }

    /// The address of a datagram's sender.
    pub(crate) fn to_ip(self) -> Option<SocketAddr> {
        match libc::c_int::from(self.bytes.ss_family) {
            libc::AF_INET => {
                let v4: libc::sockaddr_in = self.view();
                let ip = v4.sin_addr.s_addr.to_ne_bytes();
                let port = u16::from_be(v4.sin_port);
                Some(SocketAddr::V4(SocketAddrV4::new(ip.into(), port)))
            }
            libc::AF_INET6 => {
                let v6: libc::sockaddr_in6 = self.view();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                // The flow label is left out: it differs between datagrams of one sender.
                let v6 = SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id);
                Some(SocketAddr::V6(v6))
            }
            _ => None,
        }
    }

    /// The frame was addressed to this host (`PACKET_HOST`): not to another station, not to a group, and without a VLAN tag that has no
    /// interface here.
    pub(crate) fn is_to_host(self) -> bool {
        const HOST: u8 = 0;
        let link: libc::sockaddr_ll = self.view();
        link.sll_family == libc::AF_PACKET as u16 && link.sll_pkttype == HOST
    }

    /// Binds a socket to this address.
    pub(crate) fn bind(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let bytes = (&raw const self.bytes).cast();
        // SAFETY: `bytes` points to `self.bytes`, of which `self.len` bytes are initialised; the kernel reads them during the call only.
        check_result(unsafe { libc::bind(fd.as_raw_fd(), bytes, self.len) }).map(drop)
    }
}

/// A received message.
#[derive(Clone, Copy)]
pub(crate) struct RxMessage {
    pub(crate) len: usize,
    /// It consists of several datagrams of this length, the last of which may be shorter.
    pub(crate) segment: Option<usize>,
    /// It was longer than its buffer.
    pub(crate) truncated: bool,
    pub(crate) from: Address,
}

impl RxMessage {
    pub(crate) fn blank() -> RxMessage {
        RxMessage {
            len: 0,
            segment: None,
            truncated: false,
            from: Address::blank(),
        }
    }
}

/// A message to send.
#[derive(Clone, Copy)]
pub(crate) struct TxMessage {
    /// The destination; `None` on a connected socket.
    pub(crate) to: Option<Address>,
    /// How many of the pieces belong to it.
    pub(crate) pieces: usize,
    /// The kernel splits it into datagrams of this length.
    pub(crate) segment: Option<u16>,
}

/// A buffer for control messages, aligned for `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

fn messages() -> [libc::mmsghdr; MAX_MESSAGES] {
    // SAFETY: `mmsghdr` is a C structure of integers and pointers, for which zeros are valid.
    unsafe { mem::zeroed() }
}

/// Receives messages into consecutive buffers of `room` bytes each; returns their number. Does not block.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    rooms: &mut [u8],
    room: usize,
    arrivals: &mut [RxMessage],
) -> Result<usize, Errno> {
    let mut messages = messages();
    let mut controls = [Control([0; 64]); MAX_MESSAGES];
    let nowhere = libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    };
    let mut pieces = [nowhere; MAX_MESSAGES];
    let mut count = 0;
    for (at, (bytes, arrival)) in rooms
        .chunks_exact_mut(room)
        .zip(arrivals.iter_mut())
        .enumerate()
    {
        if at == MAX_MESSAGES {
            break;
        }
        pieces[at] = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        *arrival = RxMessage::blank();
        let message = &mut messages[at].msg_hdr;
        message.msg_name = (&raw mut arrival.from.bytes).cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        message.msg_iov = &raw mut pieces[at];
        message.msg_iovlen = 1;
        message.msg_control = controls[at].0.as_mut_ptr().cast();
        message.msg_controllen = 64;
        count += 1;
    }
    let (all, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
    let wait = core::ptr::null_mut();
    // SAFETY: the first `count` messages are filled in. Each points to its own part of `rooms`, to `arrivals[at].from` and to
    // `controls[at]` with their lengths; these are borrowed or local and live until the call returns.
    let came = unsafe { libc::recvmmsg(fd.as_raw_fd(), all, count as _, flags as _, wait) };
    let came = check_result(came)? as usize;
    for (arrival, message) in arrivals.iter_mut().zip(&messages).take(came) {
        arrival.from.len = message.msg_hdr.msg_namelen;
        arrival.len = (message.msg_len as usize).min(room);
        arrival.truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        arrival.segment = segment(&message.msg_hdr);
    }
    Ok(came)
}

/// The length of the datagrams that this message was joined from.
fn segment(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: `recvmmsg` filled in the message, and its control buffer is a local of the caller that is still alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: `CMSG_FIRSTHDR` and `CMSG_NXTHDR` return null or a pointer to a whole header within the control buffer.
        let head = unsafe { next.read_unaligned() };
        // SAFETY: `CMSG_LEN` only computes a number.
        let needed = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as usize;
        let is = head.cmsg_level == libc::SOL_UDP && head.cmsg_type == libc::UDP_GRO;
        if is && head.cmsg_len as usize >= needed {
            // SAFETY: `cmsg_len` says that the data behind the header has at least the length of an `int`; the read is unaligned.
            let size: libc::c_int =
                unsafe { libc::CMSG_DATA(next).cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(size).ok().filter(|size| *size > 0);
        }
        // SAFETY: `next` is a header of this message, whose control buffer is still alive.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

/// Sends messages, whose pieces follow each other in `pieces`; returns how many were sent before one failed, or the error if that is
/// the first. Does not block.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    departures: &[TxMessage],
    pieces: &[IoSlice<'_>],
) -> Result<usize, Errno> {
    let mut messages = messages();
    let mut controls = [Control([0; 64]); MAX_MESSAGES];
    let mut rest = pieces;
    let mut count = 0;
    for (at, departure) in departures.iter().take(MAX_MESSAGES).enumerate() {
        let Some((own, behind)) = rest.split_at_checked(departure.pieces) else {
            break;
        };
        rest = behind;
        let message = &mut messages[at].msg_hdr;
        if let Some(to) = &departure.to {
            message.msg_name = (&raw const to.bytes).cast_mut().cast();
            message.msg_namelen = to.len;
        }
        // `IoSlice` is guaranteed to have the layout of `struct iovec`; the kernel only reads it.
        message.msg_iov = own.as_ptr().cast_mut().cast();
        message.msg_iovlen = own.len() as _;
        if let Some(size) = departure.segment {
            set_segment(message, &mut controls[at], size);
        }
        count += 1;
    }
    let (all, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
    // SAFETY: the first `count` messages are filled in. Each points to an address in `departures`, to its part of `pieces` and to
    // `controls[at]`, which are borrowed or local and live until the call returns; the kernel only writes `msg_len` in `messages`.
    let went = unsafe { libc::sendmmsg(fd.as_raw_fd(), all, count as _, flags as _) };
    Ok(check_result(went)? as usize)
}

/// Adds the `UDP_SEGMENT` control message: the length of the datagrams.
fn set_segment(message: &mut libc::msghdr, control: &mut Control, size: u16) {
    const LEN: u32 = size_of::<u16>() as u32;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: `CMSG_SPACE` only computes a number, which is below the buffer's 64 bytes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(LEN) } as _;
    // SAFETY: `msg_control` points to a buffer that is aligned and long enough for a header and two bytes, as `msg_controllen` says, so
    // `CMSG_FIRSTHDR` is not null and `CMSG_DATA` has room for a `u16`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(message);
        (*head).cmsg_level = libc::SOL_UDP;
        (*head).cmsg_type = libc::UDP_SEGMENT;
        (*head).cmsg_len = libc::CMSG_LEN(LEN) as _;
        libc::CMSG_DATA(head).cast::<u16>().write_unaligned(size);
    }
}
