//! The system calls for several datagrams at once: `recvmmsg` with the segment size that UDP_GRO reports, and `sendmsg` with UDP_SEGMENT.
//! Errors are returned as the kernel gave them. All pointers given to the kernel are to borrowed buffers or to this stack frame.

use core::mem::{offset_of, zeroed};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::sys::receive_batch::{MAX_MESSAGES, ReceiveBatch};

/// An address of either family. The fields of `sockaddr_in` are where `sockaddr_in6` has family, port and flow information.
type RawAddress = libc::sockaddr_in6;

const _: () = assert!(offset_of!(libc::sockaddr_in, sin_port) == offset_of!(RawAddress, sin6_port));
const _: () =
    assert!(offset_of!(libc::sockaddr_in, sin_addr) == offset_of!(RawAddress, sin6_flowinfo));
const _: () = assert!(size_of::<libc::sockaddr_in>() <= size_of::<RawAddress>());

const NO_ADDRESS: RawAddress = RawAddress {
    sin6_family: 0,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

/// The address and its length.
fn raw_address(at: SocketAddr) -> (RawAddress, libc::socklen_t) {
    let (raw, len) = match at {
        SocketAddr::V4(v4) => (
            RawAddress {
                sin6_family: libc::AF_INET as libc::sa_family_t,
                sin6_port: v4.port().to_be(),
                sin6_flowinfo: u32::from_ne_bytes(v4.ip().octets()),
                ..NO_ADDRESS
            },
            size_of::<libc::sockaddr_in>(),
        ),
        SocketAddr::V6(v6) => (
            RawAddress {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            },
            size_of::<RawAddress>(),
        ),
    };
    (raw, len as libc::socklen_t)
}

fn address(raw: &RawAddress) -> Option<SocketAddr> {
    let port = u16::from_be(raw.sin6_port);
    match libc::c_int::from(raw.sin6_family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(raw.sin6_flowinfo.to_ne_bytes());
            Some(SocketAddrV4::new(ip, port).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            // Without the flow label, which may differ between datagrams of one sender.
            Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// One control message with a number. Laid out as `CMSG_DATA` has it; see the assertion below.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control<T> {
    header: libc::cmsghdr,
    value: T,
}

// SAFETY: `CMSG_LEN` only computes a number.
const CONTROL_HEADER: usize = unsafe { libc::CMSG_LEN(0) } as usize;
const _: () = assert!(offset_of!(Control<libc::c_int>, value) == CONTROL_HEADER);
const _: () = assert!(offset_of!(Control<u16>, value) == CONTROL_HEADER);

impl<T> Control<T> {
    fn new(kind: libc::c_int, value: T) -> Control<T> {
        // SAFETY: `cmsghdr` is a C structure of integers, for which zeros are valid.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = (CONTROL_HEADER + size_of::<T>()) as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = kind;
        Control { header, value }
    }
}

/// Receives messages into the batch, as many as it [expects](ReceiveBatch::expects_one) at most; EAGAIN if there are none.
pub(super) fn receive_messages(fd: BorrowedFd<'_>, batch: &mut ReceiveBatch) -> Result<(), Errno> {
    if batch.expects_one() {
        receive_at_most::<1>(fd, batch)
    } else {
        receive_at_most::<MAX_MESSAGES>(fd, batch)
    }
}

fn receive_at_most<const N: usize>(
    fd: BorrowedFd<'_>,
    batch: &mut ReceiveBatch,
) -> Result<(), Errno> {
    // SAFETY: `mmsghdr` is a C structure of integers and pointers, for which zeros are valid.
    let mut headers: [libc::mmsghdr; N] = unsafe { zeroed() };
    let nowhere = libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    };
    let mut pieces = [nowhere; N];
    let mut names = [NO_ADDRESS; N];
    let mut controls = [Control::<libc::c_int>::new(0, 0); N];
    let mut count = 0;
    for (at, (buffer, _)) in batch.slots().enumerate().take(N) {
        pieces[at] = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let header = &mut headers[at].msg_hdr;
        header.msg_name = (&raw mut names[at]).cast();
        header.msg_namelen = size_of::<RawAddress>() as libc::socklen_t;
        header.msg_iov = &raw mut pieces[at];
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut controls[at]).cast();
        header.msg_controllen = size_of::<Control<libc::c_int>>() as _;
        count += 1;
    }
    // MSG_TRUNC: the length of a message is its true one.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let forever = core::ptr::null_mut::<libc::timespec>();
    // SAFETY: the first `count` headers are filled in. Each names its own buffer of `batch`, which is borrowed exclusively, and its own
    // elements of `names`, `pieces` and `controls` with their lengths; these arrays are not moved or accessed until the call has returned.
    let received = unsafe {
        let all = headers.as_mut_ptr();
        libc::syscall(
            libc::SYS_recvmmsg,
            fd.as_raw_fd(),
            all,
            count,
            flags,
            forever,
        )
    };
    let received = usize::try_from(received).map_err(|_| last_errno())?;
    if received == 0 {
        return Err(Errno::AGAIN);
    }
    for (at, (_, message)) in batch.slots().enumerate().take(received) {
        message.len = headers[at].msg_len as usize;
        message.from = address(&names[at]);
        let Control { header, value } = controls[at];
        let is_segment = headers[at].msg_hdr.msg_controllen > 0
            && header.cmsg_level == libc::SOL_UDP
            && header.cmsg_type == libc::UDP_GRO;
        let size = usize::try_from(value).ok().filter(|size| *size > 0);
        message.segment = size.filter(|_| is_segment);
    }
    batch.set_received(received);
    Ok(())
}

/// Sends the bytes as datagrams of `segment` bytes.
pub(super) fn send_segments(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    segment: usize,
    to: SocketAddr,
) -> Result<(), Errno> {
    let size = u16::try_from(segment).map_err(|_| Errno::INVAL)?;
    let (mut name, name_len) = raw_address(to);
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::new(libc::UDP_SEGMENT, size);
    // SAFETY: `msghdr` is a C structure of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name_len;
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control<u16>>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` names the borrowed `bytes`, and `name`, `piece` and `control` of this stack frame, with their lengths; the kernel
    // reads them during the call only.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(last_errno()) } else { Ok(()) }
}

/// The C library's `errno` of this thread.
fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}
