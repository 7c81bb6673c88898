//! Socket addresses of rsockets: no more is read or written than the length that the program passes.
//! Families other than IPv4 and IPv6 are `EAFNOSUPPORT`.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::{mem, ptr};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::errno::Errno;

/// Reads an address. An IPv4-mapped IPv6 address becomes an IPv4 address.
///
/// # Safety
/// `at` is null or points to `len` bytes that are valid for reads.
pub(super) unsafe fn read(at: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    let len = len as usize;
    if at.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    if len < size_of::<sa_family_t>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: `at` is not null and has at least the bytes of the family, which is the first member; it need not be aligned.
    let family = unsafe { ptr::read_unaligned(&raw const (*at).sa_family) };
    match c_int::from(family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: `len` is at least the size of a `sockaddr_in`, for which any bytes are valid; it need not be aligned.
            let v4 = unsafe { ptr::read_unaligned(at.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: `len` is at least the size of a `sockaddr_in6`, for which any bytes are valid; it need not be aligned.
            let v6 = unsafe { ptr::read_unaligned(at.cast::<sockaddr_in6>()) };
            let (ip, port) = (
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
            );
            Ok(match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddr::new(v4.into(), port),
                None => SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into(),
            })
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes an address in the form of the socket's family, cut to the room at `at`; `len` is set to its full length.
///
/// # Safety
/// `len` is null or valid, and `at` is null or has room for `*len` bytes.
pub(super) unsafe fn write(
    address: SocketAddr,
    family: c_int,
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if at.is_null() || len.is_null() {
        return Ok(());
    }
    // SAFETY: `len` is not null, so the caller guarantees that it is valid.
    let room = unsafe { *len } as usize;
    let port = address.port().to_be();
    let copy = |from: *const u8, size: usize| {
        // SAFETY: `from` points to `size` bytes of a local; no more than the room at `at` is copied, and `len` is valid.
        unsafe {
            ptr::copy_nonoverlapping(from, at.cast::<u8>(), size.min(room));
            *len = size as socklen_t;
        }
    };
    let v6 = match address {
        SocketAddr::V6(v6) => v6,
        SocketAddr::V4(v4) if family == libc::AF_INET6 => {
            SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0)
        }
        SocketAddr::V4(v4) => {
            // SAFETY: `sockaddr_in` is integers and arrays of them, for which zeros are valid.
            let mut out: sockaddr_in = unsafe { mem::zeroed() };
            out.sin_family = libc::AF_INET as sa_family_t;
            out.sin_port = port;
            out.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            copy((&raw const out).cast(), size_of_val(&out));
            return Ok(());
        }
    };
    // SAFETY: `sockaddr_in6` is integers and arrays of them, for which zeros are valid.
    let mut out: sockaddr_in6 = unsafe { mem::zeroed() };
    out.sin6_family = libc::AF_INET6 as sa_family_t;
    out.sin6_port = port;
    out.sin6_addr.s6_addr = v6.ip().octets();
    out.sin6_scope_id = v6.scope_id();
    copy((&raw const out).cast(), size_of_val(&out));
    Ok(())
}

/// The address of a socket that has none.
pub(super) fn unspecified(family: c_int) -> SocketAddr {
    let ip: IpAddr = if family == libc::AF_INET6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    SocketAddr::new(ip, 0)
}
