//! Interface ioctls by name: flags, MTU, address, carrier. Requests are zeroed before they are filled in, and a name that does not fit
//! is rejected.

use core::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::check_result;

/// A socket for the requests; it stays in the network namespace in which it was opened.
pub(crate) fn control() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
}

/// A request for the interface with this name.
pub(super) fn ifreq_for(name: &str) -> Result<libc::ifreq, Errno> {
    // SAFETY: `ifreq` is a C structure of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero: the name is a C string.
    let room = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
    if name.len() > room.len() {
        return Err(Errno::NODEV);
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// The name that the kernel wrote.
pub(super) fn ifreq_name(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().map(|c| *c as u8);
    let bytes: Vec<u8> = bytes.take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ioctl(control: &OwnedFd, code: libc::c_ulong, request: &mut libc::ifreq) -> Result<(), Errno> {
    let request = core::ptr::from_mut(request);
    // SAFETY: the ioctls of this file read and write one `ifreq`, which is exclusively borrowed until the call returns. A pointer in it
    // is valid for that long too: only `carrier` sets one.
    check_result(unsafe { libc::ioctl(control.as_raw_fd(), code as _, request) }).map(drop)
}

pub(crate) fn flags(control: &OwnedFd, name: &str) -> Result<i32, Errno> {
    let mut request = ifreq_for(name)?;
    ioctl(control, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS succeeded and has written this member of the union.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

pub(crate) fn set_flags(control: &OwnedFd, name: &str, flags: i32) -> Result<(), Errno> {
    let mut request = ifreq_for(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(control, libc::SIOCSIFFLAGS as _, &mut request)
}

pub(crate) fn mtu(control: &OwnedFd, name: &str) -> Result<i32, Errno> {
    let mut request = ifreq_for(name)?;
    ioctl(control, libc::SIOCGIFMTU as _, &mut request)?;
    // SAFETY: SIOCGIFMTU succeeded and has written this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu })
}

pub(crate) fn set_mtu(control: &OwnedFd, name: &str, mtu: i32) -> Result<(), Errno> {
    let mut request = ifreq_for(name)?;
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(control, libc::SIOCSIFMTU as _, &mut request)
}

/// The kind of address (as in `if_arp.h`) and its first six bytes.
pub(crate) fn address(control: &OwnedFd, name: &str) -> Result<(u16, [u8; 6]), Errno> {
    let mut request = ifreq_for(name)?;
    ioctl(control, libc::SIOCGIFHWADDR as _, &mut request)?;
    // SAFETY: SIOCGIFHWADDR succeeded and has written this member of the union.
    let found = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut octets = [0; 6];
    for (to, from) in octets.iter_mut().zip(found.sa_data) {
        *to = from as u8;
    }
    Ok((found.sa_family, octets))
}

pub(crate) fn set_address(control: &OwnedFd, name: &str, octets: [u8; 6]) -> Result<(), Errno> {
    let mut request = ifreq_for(name)?;
    // SAFETY: `sockaddr` is a C structure of integers, for which zeros are valid.
    let mut address: libc::sockaddr = unsafe { mem::zeroed() };
    address.sa_family = libc::ARPHRD_ETHER;
    for (to, from) in address.sa_data.iter_mut().zip(octets) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    ioctl(control, libc::SIOCSIFHWADDR as _, &mut request)
}

/// `struct ethtool_value`, the argument of `ETHTOOL_GLINK`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const ETHTOOL_GLINK: u32 = 0x0a;

/// The interface is up and has a carrier.
pub(crate) fn carrier(control: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let mut request = ifreq_for(name)?;
    let mut value = Value {
        command: ETHTOOL_GLINK,
        data: 0,
    };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // ETHTOOL_GLINK reads and writes one `Value`, which lives until the call returns.
    ioctl(control, libc::SIOCETHTOOL as _, &mut request)?;
    Ok(value.data != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_interface_name_gives_nodev() {
        assert!(ifreq_for("exactly15bytes0").is_ok());
        assert!(matches!(ifreq_for("exactly16bytes00"), Err(Errno::NODEV)));
        assert_eq!(
            ifreq_name(&ifreq_for("exactly15bytes0").unwrap()),
            "exactly15bytes0"
        );
    }

    #[test]
    fn loopback_flags_and_address_are_read() {
        let control = control().unwrap();
        assert!(flags(&control, "lo").unwrap() & libc::IFF_LOOPBACK != 0);
        assert_eq!(address(&control, "lo"), Ok((libc::ARPHRD_LOOPBACK, [0; 6])));
        assert_eq!(mtu(&control, "no-such"), Err(Errno::NODEV));
    }
}
