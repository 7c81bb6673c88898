//! The IP addresses of this host's interfaces that are up, in the system's order.
//! Not to be called under a lock: the C library queries the kernel over a netlink socket.

use core::ffi::CStr;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ffi::CString;
use std::os::fd::AsRawFd;

use rustix::net::{self, AddressFamily, SocketType};

use crate::config::device::Interface;

use super::{Error, Result};

/// Each address with its interface.
pub fn interfaces() -> Result<Vec<Interface>> {
    interfaces_with(libc::IFF_UP)
}

/// Each address of an interface that is up and has a carrier.
pub fn running_interfaces() -> Result<Vec<Interface>> {
    interfaces_with(libc::IFF_UP | libc::IFF_RUNNING)
}

/// Each address of an interface that has these flags.
fn interfaces_with(flags: libc::c_int) -> Result<Vec<Interface>> {
    let mut first = core::ptr::null_mut();
    // SAFETY: writes the head of a list to `first`; the list is valid until `freeifaddrs` below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(Error::last("getifaddrs"));
    }
    let mut found = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    while !next.is_null() {
        // SAFETY: `next` is a non-null entry of the list, which is valid until `freeifaddrs` below.
        let entry = unsafe { &*next };
        let up = entry.ifa_flags & flags as u32 == flags as u32;
        // SAFETY: `ifa_addr` is null or a socket address of the length that its family has (getifaddrs(3)).
        if let Some(ip) = unsafe { address(entry.ifa_addr) }.filter(|_| up) {
            // SAFETY: `ifa_name` is a NUL-terminated string of the entry.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let name = name.to_string_lossy().into_owned();
            found.push(Interface { name, ip });
        }
        next = entry.ifa_next;
    }
    // SAFETY: `first` came from `getifaddrs`, is freed once, and nothing refers to the list: names and addresses were copied.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The name of the interface that has this address; none if no interface has it.
pub fn interface_name(ip: IpAddr) -> Result<Option<String>> {
    let all = interfaces()?;
    // 127.0.0.0/8 belongs to the loopback interface, though it lists one address only.
    let loopback = || {
        let ours = |i: &&Interface| ip.is_loopback() && i.ip.is_loopback();
        all.iter().find(ours)
    };
    let found = all.iter().find(|i| i.ip == ip).or_else(loopback);
    Ok(found.map(|i| i.name.clone()))
}

/// The index of the interface that has this address; none if no interface has it.
pub fn interface_of(ip: IpAddr) -> Result<Option<u32>> {
    let name = interface_name(ip)?.and_then(|name| CString::new(name).ok());
    let Some(name) = name else {
        return Ok(None);
    };
    // SAFETY: `name` is NUL-terminated and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    Ok((index != 0).then_some(index))
}

/// The MTU of the interface that has this address, in bytes; none if no interface has it.
pub fn interface_mtu(ip: IpAddr) -> Result<Option<u32>> {
    let Some(name) = interface_name(ip)? else {
        return Ok(None);
    };
    let socket = net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let socket = socket.map_err(Error::of("socket"))?;
    // SAFETY: all bytes zero are a valid value of this plain C structure.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: `request` is an `ifreq` with a NUL-terminated name, which the call reads, and it writes the union of it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if done != 0 {
        return Err(Error::last("ioctl SIOCGIFMTU"));
    }
    // SAFETY: this call has written the MTU into the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).ok())
}

/// The IP address in a socket address, if it is one.
///
/// # Safety
/// `from` is null or points to a socket address of the length that its family says.
unsafe fn address(from: *const libc::sockaddr) -> Option<IpAddr> {
    if from.is_null() {
        return None;
    }
    // SAFETY: `from` is not null, and every socket address begins with its family.
    match i32::from(unsafe { (*from).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in` (contract of this function); read without alignment.
            let v4 = unsafe { from.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6` (contract of this function); read without alignment.
            let v6 = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_its_interface_index() {
        assert_eq!(interface_of(Ipv4Addr::LOCALHOST.into()).unwrap(), Some(1));
        let second = Ipv4Addr::new(127, 0, 0, 2);
        assert_eq!(interface_of(second.into()).unwrap(), Some(1));
        let nobodys = Ipv4Addr::new(198, 51, 100, 1);
        assert_eq!(interface_of(nobodys.into()).unwrap(), None);
    }

    #[test]
    fn loopback_has_an_mtu() {
        let mtu = interface_mtu(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(mtu.is_some_and(|mtu| mtu >= 1280), "{mtu:?}");
        let nobodys = Ipv4Addr::new(198, 51, 100, 1);
        assert_eq!(interface_mtu(nobodys.into()).unwrap(), None);
    }

    #[test]
    fn interfaces_include_loopback() {
        let all = interfaces().unwrap();
        let loopback = |i: &Interface| i.name == "lo" && i.ip == Ipv4Addr::LOCALHOST;
        assert!(all.iter().any(loopback), "{all:?}");
    }
}
