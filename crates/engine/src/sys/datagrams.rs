//! A UDP port: where unreliable datagrams of the `roce` personality come and go.
//! It promises not to wait, and to keep datagrams whole: one that is longer than the room for it says so.
//! It refuses to look at them.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendFlags, SocketType};

use super::fd::Fd;
use super::listener::bound;
use super::{Error, Result};

/// A datagram socket.
#[derive(Debug)]
pub struct Datagrams {
    fd: Fd,
}

impl Datagrams {
    /// Receives at `at`, alone: sharing a UDP port would split its datagrams between programs.
    pub fn bind(at: SocketAddr) -> Result<Datagrams> {
        let fd = bound(at, SocketType::DGRAM, false)?;
        Ok(Datagrams { fd })
    }

    /// Sends one; false if there is no room now. A complaint about an earlier one (nobody there) is not about this one.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<bool> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match retry_on_intr(|| net::sendto(&self.fd, bytes, flags, &to)) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(Errno::CONNREFUSED) => {}
                Err(errno) => return Err(Error::new("sendto", errno)),
            }
        }
    }

    /// Takes one: its true length, which may exceed the room, and its origin; none if none came.
    pub fn receive(&self, room: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        loop {
            match retry_on_intr(|| net::recvfrom(&self.fd, &mut *room, flags)) {
                Ok((_, whole, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    if let Some(from) = from {
                        return Ok(Some((whole, from)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNREFUSED) => {}
                Err(errno) => return Err(Error::new("recvfrom", errno)),
            }
        }
    }

    /// Where it receives.
    pub fn local(&self) -> Result<SocketAddr> {
        let name = net::getsockname(&self.fd).map_err(Error::of("getsockname"))?;
        SocketAddr::try_from(name).map_err(Error::of("getsockname"))
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
