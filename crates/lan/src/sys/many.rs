//! Messages of a socket, many per call: datagrams with their addresses, several of one length as one message (GSO, GRO).
//! It promises that the kernel writes only into rooms that are lent for the call, and reads only what is borrowed for it.
//! It refuses to decide which refusals matter.

use core::mem;
use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::answer;

/// Messages per call.
pub(crate) const MOST: usize = 64;
/// Pieces of all messages of a call.
pub(crate) const PIECES: usize = 2 * MOST;

/// An address of any family that is used here, as the kernel has it.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    bytes: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Address {
    fn blank() -> Address {
        Address {
            // SAFETY: a plain C structure, for which zeros are a value.
            bytes: unsafe { mem::zeroed() },
            len: 0,
        }
    }

    fn of<T: Copy>(value: T) -> Address {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        let mut address = Address::blank();
        // SAFETY: there is room for it, as was just asserted, and the storage is ours.
        unsafe { (&raw mut address.bytes).cast::<T>().write(value) };
        address.len = size_of::<T>() as libc::socklen_t;
        address
    }

    /// Its bytes as another C structure of addresses.
    fn view<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        // SAFETY: as long and as aligned, as was just asserted; only structures of integers are asked for, and the storage was
        // zeroed before the kernel or we wrote to it.
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

    /// An interface, for a packet socket that writes whole frames.
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
                // Flow labels differ between datagrams of one sender.
                let v6 = SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id);
                Some(SocketAddr::V6(v6))
            }
            _ => None,
        }
    }

    /// A frame was sent to this machine alone: not to others, not to a group, and without a tag that nobody here takes.
    pub(crate) fn is_to_host(self) -> bool {
        const HOST: u8 = 0;
        let link: libc::sockaddr_ll = self.view();
        link.sll_family == libc::AF_PACKET as u16 && link.sll_pkttype == HOST
    }

    /// Binds a socket to it.
    pub(crate) fn bind(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let bytes = (&raw const self.bytes).cast();
        // SAFETY: reads so many bytes of the address, which is borrowed until the call returns.
        answer(unsafe { libc::bind(fd.as_raw_fd(), bytes, self.len) }).map(drop)
    }
}

/// A message that came.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) len: usize,
    /// It is several datagrams of this length, the last of which may be shorter.
    pub(crate) segment: Option<usize>,
    /// It was longer than its room.
    pub(crate) cut: bool,
    pub(crate) from: Address,
}

impl Arrival {
    pub(crate) fn blank() -> Arrival {
        Arrival {
            len: 0,
            segment: None,
            cut: false,
            from: Address::blank(),
        }
    }
}

/// A message to send.
#[derive(Clone, Copy)]
pub(crate) struct Departure {
    /// Not needed on a connected socket.
    pub(crate) to: Option<Address>,
    /// How many of the pieces are its own.
    pub(crate) pieces: usize,
    /// The kernel cuts it into datagrams of this length.
    pub(crate) segment: Option<u16>,
}

/// Room for what comes or goes beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

fn messages() -> [libc::mmsghdr; MOST] {
    // SAFETY: plain C structures, for which zeros are a value.
    unsafe { mem::zeroed() }
}

/// Takes messages into rooms of `room` bytes each, one behind the other; how many came. Does not wait.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    rooms: &mut [u8],
    room: usize,
    arrivals: &mut [Arrival],
) -> Result<usize, Errno> {
    let mut messages = messages();
    let mut controls = [Control([0; 64]); MOST];
    let nowhere = libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    };
    let mut pieces = [nowhere; MOST];
    let mut count = 0;
    for (at, (bytes, arrival)) in rooms
        .chunks_exact_mut(room)
        .zip(arrivals.iter_mut())
        .enumerate()
    {
        if at == MOST {
            break;
        }
        pieces[at] = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        *arrival = Arrival::blank();
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
    // SAFETY: every message names a room, an address and a control of its own, all of which are borrowed or owned here and
    // outlive the call; `count` of the messages are filled in.
    let came = unsafe { libc::recvmmsg(fd.as_raw_fd(), all, count as _, flags as _, wait) };
    let came = answer(came)? as usize;
    for (arrival, message) in arrivals.iter_mut().zip(&messages).take(came) {
        arrival.from.len = message.msg_hdr.msg_namelen;
        arrival.len = (message.msg_len as usize).min(room);
        arrival.cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        arrival.segment = segment(&message.msg_hdr);
    }
    Ok(came)
}

/// How long the datagrams are that this message was made of.
fn segment(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the message was filled in by the kernel, and its control is still there.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: within the control, as the two calls that name it make sure.
        let head = unsafe { next.read_unaligned() };
        // SAFETY: only its length counts.
        let needed = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as usize;
        let is = head.cmsg_level == libc::SOL_UDP && head.cmsg_type == libc::UDP_GRO;
        if is && head.cmsg_len as usize >= needed {
            // SAFETY: behind the head, and as long as was just checked.
            let size: libc::c_int =
                unsafe { libc::CMSG_DATA(next).cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(size).ok().filter(|size| *size > 0);
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

/// Sends messages, whose pieces stand one behind the other; how many went before one was refused. If that is the first, why.
/// Does not wait.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    departures: &[Departure],
    pieces: &[IoSlice<'_>],
) -> Result<usize, Errno> {
    let mut messages = messages();
    let mut controls = [Control([0; 64]); MOST];
    let mut rest = pieces;
    let mut count = 0;
    for (at, departure) in departures.iter().take(MOST).enumerate() {
        let Some((own, behind)) = rest.split_at_checked(departure.pieces) else {
            break;
        };
        rest = behind;
        let message = &mut messages[at].msg_hdr;
        if let Some(to) = &departure.to {
            message.msg_name = (&raw const to.bytes).cast_mut().cast();
            message.msg_namelen = to.len;
        }
        // Laid out like the system's `struct iovec`, which it promises; the kernel only reads it.
        message.msg_iov = own.as_ptr().cast_mut().cast();
        message.msg_iovlen = own.len() as _;
        if let Some(size) = departure.segment {
            set_segment(message, &mut controls[at], size);
        }
        count += 1;
    }
    let (all, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
    // SAFETY: every message names its address, its pieces and its control, which are borrowed or owned here and outlive the
    // call; `count` of the messages are filled in, and the kernel writes only their lengths.
    let went = unsafe { libc::sendmmsg(fd.as_raw_fd(), all, count as _, flags as _) };
    Ok(answer(went)? as usize)
}

/// Says beside a message how long its datagrams are.
fn set_segment(message: &mut libc::msghdr, control: &mut Control, size: u16) {
    const LEN: u32 = size_of::<u16>() as u32;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: only the length counts, which is below the control's.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(LEN) } as _;
    // SAFETY: the control is there, aligned and long enough for a head and two bytes, so that the head is not null.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(message);
        (*head).cmsg_level = libc::SOL_UDP;
        (*head).cmsg_type = libc::UDP_SEGMENT;
        (*head).cmsg_len = libc::CMSG_LEN(LEN) as _;
        libc::CMSG_DATA(head).cast::<u16>().write_unaligned(size);
    }
}
