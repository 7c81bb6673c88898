//! Socket addresses of the connection manager: `sockaddr_in`, `sockaddr_in6` and, for reading, `sockaddr_ib`.
//! A GID is read as the IP address that it stands for. Other families are `EAFNOSUPPORT`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::Errno;
use crate::function::{config, first_function};

/// InfiniBand's address family: the struct has a GID where `sockaddr_in6` has its address.
const AF_IB: i32 = 27;
/// Offset of the GID.
const GID_OFFSET: usize = 8;

/// Reads an address; none for a null pointer.
///
/// # Safety
/// `at` is null or points to a struct of the family that it names.
pub(crate) unsafe fn read(at: *const sockaddr) -> Result<Option<SocketAddr>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: `at` is not null, so the caller guarantees a socket address; it need not be aligned.
    let family = i32::from(unsafe { at.read_unaligned() }.sa_family);
    match family {
        AF_INET => {
            // SAFETY: for `AF_INET` the caller guarantees a `sockaddr_in` at `at`; it need not be aligned.
            let v4 = unsafe { at.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            let port = u16::from_be(v4.sin_port);
            Ok(Some(SocketAddr::V4(SocketAddrV4::new(ip, port))))
        }
        AF_INET6 => {
            // SAFETY: for `AF_INET6` the caller guarantees a `sockaddr_in6` at `at`; it need not be aligned.
            let v6 = unsafe { at.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            let scope = v6.sin6_scope_id;
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))))
        }
        AF_IB => {
            // SAFETY: the caller guarantees a `sockaddr_ib`, which has 16 bytes at this offset; an array of bytes needs no alignment.
            let gid: [u8; 16] =
                unsafe { at.cast::<u8>().add(GID_OFFSET).cast::<[u8; 16]>().read() };
            let ip = Ipv6Addr::from(gid).to_canonical();
            Ok(Some(SocketAddr::new(ip, 0)))
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// An address as `sockaddr_storage`.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: `sockaddr_storage` is integers and arrays of them, for which zeros are valid.
    let mut storage: sockaddr_storage = unsafe { core::mem::zeroed() };
    let at = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let at = at.cast::<sockaddr_in>();
            // SAFETY: `at` points into the local `storage`, which is large enough and aligned for a `sockaddr_in`.
            unsafe {
                (*at).sin_family = AF_INET as sa_family_t;
                (*at).sin_port = v4.port().to_be();
                (*at).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
        }
        SocketAddr::V6(v6) => {
            let at = at.cast::<sockaddr_in6>();
            // SAFETY: `at` points into the local `storage`, which is large enough and aligned for a `sockaddr_in6`.
            unsafe {
                (*at).sin6_family = AF_INET6 as sa_family_t;
                (*at).sin6_port = v6.port().to_be();
                (*at).sin6_addr.s6_addr = v6.ip().octets();
                (*at).sin6_scope_id = v6.scope_id();
            }
        }
    }
    storage
}

/// The length of the address's struct.
pub(crate) fn len(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    }
}

/// The local address from which this peer is reached: that of a port of the adapter's own (setting `port`), or as the system chooses it.
pub(crate) fn local_addr_for(to: SocketAddr) -> Result<IpAddr, Errno> {
    if config().is_some_and(|config| config.port.is_some())
        && let Some(own) = first_function()?.device.port_route(to.ip())
    {
        return Ok(own);
    }
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::ENETUNREACH));
    // No packet is sent: a datagram socket has a local address once it is connected.
    let socket = std::net::UdpSocket::bind((any, 0)).map_err(errno)?;
    let port = to.port().max(1);
    socket
        .connect(SocketAddr::new(to.ip(), port))
        .map_err(errno)?;
    Ok(socket.local_addr().map_err(errno)?.ip())
}

/// The TCP or UDP port for a port number of the program (setting `cm_port_offset`).
pub(super) fn wire_port(port: u16) -> Result<u16, Errno> {
    let offset = config().map_or(0, |config| config.cm_port_offset);
    if port == 0 {
        return Ok(0);
    }
    port.checked_add(offset).ok_or(Errno(libc::EADDRNOTAVAIL))
}

/// The port number of the program for a TCP or UDP port.
pub(super) fn program_port(port: u16) -> u16 {
    let offset = config().map_or(0, |config| config.cm_port_offset);
    port.saturating_sub(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_reads_back_unchanged() {
        for text in [
            "192.0.2.7:4791",
            "[2001:db8::7]:1",
            "0.0.0.0:0",
            "[::]:65535",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = storage(address);
            // SAFETY: `storage` is a local that holds an address of the family that it names.
            let read = unsafe { read((&raw const storage).cast()) };
            assert_eq!(read, Ok(Some(address)));
        }
    }

    #[test]
    fn sockaddr_ib_gid_is_read_as_ip_address() {
        for text in ["239.1.2.3", "ff12:401b::7"] {
            let ip: IpAddr = text.parse().unwrap();
            let gid = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let mut bytes = [0; 48];
            bytes[..2].copy_from_slice(&27_u16.to_ne_bytes());
            bytes[8..24].copy_from_slice(&gid);
            // SAFETY: `bytes` is a local that holds all of a `sockaddr_ib`.
            let read = unsafe { read(bytes.as_ptr().cast()) };
            assert_eq!(read, Ok(Some(SocketAddr::new(ip, 0))));
        }
    }

    #[test]
    fn other_address_families_are_refused() {
        // SAFETY: `sockaddr_storage` is integers and arrays of them; zeros are the family `AF_UNSPEC`.
        let storage: sockaddr_storage = unsafe { core::mem::zeroed() };
        // SAFETY: `storage` is a local, and larger than each struct of an address.
        let read = unsafe { read((&raw const storage).cast()) };
        assert_eq!(read, Err(Errno(libc::EAFNOSUPPORT)));
        // SAFETY: `read` takes null.
        assert_eq!(unsafe { super::read(core::ptr::null()) }, Ok(None));
    }
}
